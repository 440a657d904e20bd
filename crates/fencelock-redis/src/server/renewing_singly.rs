//! Renewals of a lock in a hash slot that is being moved.

use super::Redis;
use crate::scripts::script::{self, Call, SingleKey};
use fencelock_core::{Claim, Fault, Renew, Renewal, Unknown, hash_slot};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

impl Redis {
    /// Renews with one key of the lock at a time. Each key is on this node, or on `importing`, to which the slot is moved. A loss
    /// cannot be detected: the result is then unknown.
    pub(crate) async fn renew_singly(&self, renewal: &Renewal, importing: Option<&Self>) -> Result<Renew, Unknown> {
        if self.link.target.acks.is_some() {
            let why = "a renewal counts when replicas have confirmed it, and the node of this key is about to change";
            return Err(Unknown::new(self.link.node(), Fault::Busy, why));
        }
        let wire = self.link.target.wire(&renewal.key);
        for key in [SingleKey::Lock, SingleKey::Held, SingleKey::Holds] {
            let call = script::renew_singly(&wire, key, &renewal.holder, renewal.ttl.get());
            match self.call_single(&wire, &call, importing).await? {
                Value::BulkString(word) if word == b"renewed" && key != SingleKey::Held => break,
                Value::BulkString(word) if word == b"renewed" || word == b"shared" => {}
                _ => {
                    let why = "its slot is being moved, and the keys that were found do not prove the hold";
                    return Err(Unknown::new(self.link.node(), Fault::Busy, why));
                }
            }
        }
        // The queue was not read, so there may be a waiter.
        Ok(Renew::Renewed { waiters: 1 })
    }

    /// Keeps the position of a waiter that cannot poll because its slot is being moved.
    pub(crate) async fn wait_singly(&self, claim: &Claim, importing: Option<&Self>) -> Result<(), Unknown> {
        let wire = self.link.target.wire(&claim.key);
        let call = script::renew_singly(&wire, SingleKey::Alive, &claim.holder.id, claim.ttl.get());
        self.call_single(&wire, &call, importing).await.map(drop)
    }

    async fn call_single(&self, wire: &str, call: &Call, importing: Option<&Self>) -> Result<Value, Unknown> {
        let session = self.session().await?;
        let error = match self.link.call(&session, call).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let moved = self.unknown(&error);
        let names = || self.link.target.cluster.as_ref()?.importing(hash_slot(wire));
        match importing {
            // The slot may be moved to another node than before.
            Some(importing) if is_ask(&error) && importing.link.target.tcp_address() == names() => {
                importing.call_asking(call).await
            }
            _ => Err(moved),
        }
    }

    /// Sends a call for a key that was already moved to this node, in a slot that is still being imported.
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

fn is_ask(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Ask)
}
