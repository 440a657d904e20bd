//! Renewals of a lock in a hash slot that is being moved.

use super::Redis;
use super::script::{self, Call, SingleKey};
use fencelock_core::{Fault, Renew, Renewal, Unknown};
use redis::{ErrorKind, ServerErrorKind, Value};

impl Redis {
    /// Renews with one key of the lock at a time. Each key is at this node, or at `importing`, to which the slot is moved. It cannot
    /// tell that the lock is lost: then the result is unknown.
    pub(crate) async fn renew_singly(&self, renewal: &Renewal, importing: Option<&Self>) -> Result<Renew, Unknown> {
        if self.link.target.acks.is_some() {
            let why = "a renewal counts when replicas have confirmed it, and the node of this key is about to change";
            return Err(Unknown::new(self.link.node(), Fault::Busy, why));
        }
        let wire = self.link.target.wire(&renewal.key);
        let keys: &[SingleKey] = &[SingleKey::Lock, SingleKey::Held, SingleKey::Holds];
        for key in keys {
            let call = script::renew_singly(&wire, *key, &renewal.holder, renewal.ttl.get());
            match self.call_single(&call, importing).await? {
                Value::BulkString(word) if word == b"renewed" && *key != SingleKey::Held => break,
                Value::BulkString(word) if word == b"renewed" || word == b"shared" => {}
                _ => {
                    let why = "its slot is being moved, and the keys that were found do not show the hold";
                    return Err(Unknown::new(self.link.node(), Fault::Busy, why));
                }
            }
        }
        // The queue was not read: there may be a waiter.
        Ok(Renew::Renewed { waiters: 1 })
    }

    async fn call_single(&self, call: &Call, importing: Option<&Self>) -> Result<Value, Unknown> {
        let session = self.session().await?;
        let error = match self.link.call(&session, call).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match importing {
            Some(importing) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                importing.call_asking(call).await
            }
            _ => Err(self.unknown(&error)),
        }
    }

    /// Sends a call for a key that has been moved here, in a slot that has not.
    async fn call_asking(&self, call: &Call) -> Result<Value, Unknown> {
        let session = self.session().await?;
        let mut commands = redis::pipe();
        commands.cmd("ASKING");
        commands.add_command(call.in_full());
        let answers = session.send_all(&commands).await;
        self.link.check(&session);
        let mut answers = answers.map_err(|error| self.unknown(&error))?;
        answers.pop().unwrap_or(Ok(Value::Nil)).map_err(|error| self.unknown(&error))
    }
}
