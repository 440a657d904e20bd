//! Renewals. They may open a second connection, because a lease could end while the client waits for a lost request.
//! While a hash slot is moved, a renewal uses one key of the lock at a time.

use super::Redis;
use crate::connection::ack_writer::Acked;
use crate::connection::batch::send_batch;
use crate::connection::session::Session;
use crate::hash_slot::hash_slot;
use crate::scripts::quarantine::MarkerState;
use crate::scripts::reply;
use crate::scripts::script::{self, Call};
use fencelock_core::{BootClock, Claim, Clock, Drift, Fault, KeyTable, Moment, Renew, Renewal, Unknown};
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A batch without a reply after this fraction of its shortest lease is also sent over a new connection. It was sent after
/// a third of the lease, so half of the lease is left: enough to connect, and to stop a command in time if that fails.
const PART: u32 = 6;
/// No connection is considered dead sooner, because a scheduler may pause a process for this long.
const SOONEST: Duration = Duration::from_millis(25);

/// One reply for each renewal.
pub(crate) type RenewReplies = Vec<Result<Renew, Unknown>>;

impl Redis {
    pub(crate) async fn renew_all(&self, renewals: &[Renewal]) -> RenewReplies {
        let begun = BootClock.now();
        let session = match self.link.session().await {
            Ok(session) => session,
            Err(unknown) => return vec![Err(unknown); renewals.len()],
        };
        if let Some(Err(unknown)) = renewals.iter().map(|one| self.check_ttl(one.ttl)).find(Result::is_err) {
            return vec![Err(unknown); renewals.len()];
        }
        let sent = Instant::now();
        let mut first = pin!(self.renew_over(&session, renewals, begun));
        if let Ok(answers) = timeout(self.patience(&session, renewals), first.as_mut()).await {
            return answers;
        }
        if !session.liveness.end_if_silent_since(sent) {
            return first.await;
        }
        self.link.check(&session);
        // A repeated renewal is harmless, so the first request continues.
        let again = pin!(async {
            match self.link.session().await {
                Ok(session) => self.renew_over(&session, renewals, begun).await,
                Err(unknown) => vec![Err(unknown); renewals.len()],
            }
        });
        first_answered(first, again).await
    }

    async fn renew_over(&self, session: &Session, renewals: &[Renewal], begun: Moment) -> RenewReplies {
        let withheld = self.withheld(session, renewals, begun).await;
        let is_sent = |i: usize| withheld.as_ref().is_none_or(|withheld| withheld[i].is_none());
        let sent = renewals.iter().enumerate().filter(|(i, _)| is_sent(*i)).map(|(_, renewal)| {
            script::renew(
                &self.link.target.redis_key(&renewal.key),
                &renewal.holder,
                renewal.ttl.get(),
                renewal.assumed,
            )
            .tracked(session.server_info.tracking)
        });
        let mut answers = self.renew_calls(session, sent.collect()).await;
        if let Err(unknown) = session.ensure_master(self.link.node()).await {
            answers.fill(Err(unknown));
        }
        let Some(withheld) = withheld else { return answers };
        let mut answers = answers.into_iter();
        let lost = || Err(Unknown::new(self.link.node(), Fault::Other, "no answer"));
        withheld.into_iter().map(|unknown| unknown.map_or_else(|| answers.next().unwrap_or_else(lost), Err)).collect()
    }

    /// The renewals that a new master must not execute during its quarantine, with the error: the old master could grant the key to
    /// another client. `None` if all may be sent.
    async fn withheld(&self, session: &Session, renewals: &[Renewal], begun: Moment) -> Option<Vec<Option<Unknown>>> {
        let (mastership, quarantine) = (session.mastership.as_ref()?, self.quarantine()?);
        if session.serves.load(Ordering::Relaxed) {
            return None;
        }
        match self.link.inspect_marker(session, quarantine).await {
            Ok(MarkerState::Serving) => {
                session.serves.store(true, Ordering::Relaxed);
                return None;
            }
            // Clients with other sentinels may use another master.
            Err(unknown) if unknown.is_permanent() => return Some(vec![Some(unknown); renewals.len()]),
            _ => {}
        }
        let drift = Drift::default();
        let withhold = |renewal: &Renewal| {
            // If the remaining lease is unknown, it proves nothing. The assumed remaining lease includes the clock drift, which
            // must not be counted here.
            let left = Some(renewal.assumed).filter(|left| *left != Duration::MAX).unwrap_or_default();
            let left = left.saturating_sub(BootClock.now().since(begun));
            let carried = mastership.carries(left.saturating_sub(drift.of(left)));
            let why = || {
                Unknown::new(
                    self.link.node(),
                    Fault::Quarantined,
                    "a new master does not renew a lease that ends soon: the old master could still grant it to another client",
                )
            };
            (!carried).then(why)
        };
        Some(renewals.iter().map(withhold).collect())
    }

    pub(crate) async fn renew_calls(&self, session: &Session, calls: Vec<Call>) -> RenewReplies {
        let many = calls.len();
        let calls = calls.into_iter().map(|call| call.of_trial(self.in_trial)).collect();
        // A trial does without the replicas, which another finding counts.
        let (answers, acked) = match session.acks.as_ref().filter(|_| !self.in_trial) {
            None => (send_batch(session, calls, None).await, None),
            Some(line) => match line.send(calls).await {
                Ok((answers, acked)) => (Ok(answers), Some(acked)),
                Err(error) => (Err(error), None),
            },
        };
        self.link.check(session);
        match answers {
            Ok(answers) => answers.into_iter().map(|answer| self.read_renewal(answer, acked.as_ref())).collect(),
            Err(error) => vec![Err(self.unknown(&error)); many],
        }
    }

    /// A loss is final and does not depend on the replicas.
    pub(crate) fn read_renewal(&self, answer: RedisResult<Value>, acked: Option<&Acked>) -> Result<Renew, Unknown> {
        let answer = reply::read_renew(self.link.node(), answer.map_err(|error| self.unknown(&error))?)?;
        if let (Renew::Renewed { .. }, Some(acked), Some(acks)) = (&answer, acked, self.link.target.acks) {
            acks.enough(self.link.node(), *acked.as_ref().map_err(|error| self.unknown(error))?)?;
        }
        Ok(answer)
    }

    /// How long to wait for a reply before a new connection is opened. Replicas have their own timeout.
    fn patience(&self, session: &Session, renewals: &[Renewal]) -> Duration {
        let shortest = renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default();
        let replicas = self.link.target.acks.map(|acks| acks.limit).unwrap_or_default();
        (shortest / PART).max(SOONEST).max(session.liveness.patience()) + replicas
    }

    /// Renews with one key of the lock at a time. Each key is on this node, or on `importing`, to which the slot is moved. A loss
    /// cannot be detected: the result is then unknown.
    pub(crate) async fn renew_singly(&self, renewal: &Renewal, importing: Option<&Self>) -> Result<Renew, Unknown> {
        if self.link.target.acks.is_some() {
            let why = "a renewal counts when replicas have confirmed it, and the node of this key is about to change";
            return Err(Unknown::new(self.link.node(), Fault::Busy, why));
        }
        let redis_key = self.link.target.redis_key(&renewal.key);
        for side in [None, Some("held"), Some("holds")] {
            let call = script::renew_singly(&redis_key, side, &renewal.holder, renewal.ttl.get());
            match self.call_single(&redis_key, &call, importing).await? {
                Value::BulkString(word) if word == b"renewed" && side != Some("held") => break,
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
        let redis_key = self.link.target.redis_key(&claim.key);
        let call = script::renew_singly(&redis_key, Some("alive"), &claim.holder.id, KeyTable::WAITER_LIFE);
        self.call_single(&redis_key, &call, importing).await.map(drop)
    }

    async fn call_single(&self, redis_key: &str, call: &Call, importing: Option<&Self>) -> Result<Value, Unknown> {
        let session = self.link.session().await?;
        let error = match self.link.call(&session, call).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let moved = self.unknown(&error);
        let names = || self.link.target.cluster.as_ref()?.importing(hash_slot(redis_key));
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
        let session = self.link.session().await?;
        let mut commands = redis::pipe();
        commands.cmd("ASKING");
        commands.add_command(call.in_full());
        let answers = session.send_all(&commands).await;
        self.link.check(&session);
        let mut answers = answers.map_err(|error| self.unknown(&error))?;
        answers.pop().unwrap_or(Ok(Value::Nil)).map_err(|error| self.unknown(&error))
    }
}

/// The first successful result; the last error if both failed.
async fn first_answered(
    mut one: impl Future<Output = RenewReplies> + Unpin,
    mut other: impl Future<Output = RenewReplies> + Unpin,
) -> RenewReplies {
    tokio::select! {
        answers = &mut one => if is_answered(&answers) { answers } else { other.await },
        answers = &mut other => if is_answered(&answers) { answers } else { one.await },
    }
}

fn is_answered(answers: &RenewReplies) -> bool {
    answers.iter().any(Result::is_ok)
}

fn is_ask(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Ask)
}
