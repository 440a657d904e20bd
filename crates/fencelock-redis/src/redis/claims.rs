//! Claims of a lock, and the subscriptions that wake waiters.

use super::combined::Common;
use super::quarantine::{self, EpochCheck, MarkerState, Refusal};
use super::reply::{self, Claimed};
use super::script::{self, Path, Requested};
use super::session::Session;
use super::unread;
use super::{Redis, Steps};
use fencelock_core::{Acquire, Claim, Fault, Intent, Key, Occupant, Unknown};
use redis::Value;
use std::sync::atomic::Ordering;

impl Redis {
    /// `proposal` is that of a quorum.
    pub(super) async fn claim(&self, claim: &Claim, proposal: Option<u64>) -> Result<Acquire, Unknown> {
        claim.supported_by(self)?;
        let session = self.session().await?;
        if let Some(cause) = session.server_info.no_release.as_ref().filter(|_| !self.in_trial) {
            return Err(cause.clone());
        }
        let had_channel = self.has_channel(&session, &claim.key);
        if let Some(answer) = self.send_claim(&session, claim, proposal).await? {
            self.watch_foreign(&session, &claim.key, &answer).await;
            let answer = self.with_channel(&session, claim, answer, had_channel).await;
            return self.confirmed(&session, claim, answer).await;
        }
        // The lease may have ended between the claim and the poll.
        let poll = claim.with_intent(Intent::Poll);
        let answer = self.send_claim(&session, &poll, proposal).await?.unwrap_or(Acquire::Gone);
        self.confirmed(&session, claim, answer).await
    }

    /// Whether a claim already has a channel, or needs none.
    fn has_channel(&self, session: &Session, key: &Key) -> bool {
        session.shards.as_ref().is_none_or(|shards| shards.channel(&self.link.target.wire(key)).is_some())
    }

    /// The first claim that waits in a hash slot of a cluster subscribes to the channel of the slot. A poll then sends the
    /// channel to the server. Until then the server hands over the lock without a message.
    async fn with_channel(&self, session: &Session, claim: &Claim, answer: Acquire, had_channel: bool) -> Acquire {
        let Some(shards) = session.shards.as_ref().filter(|_| matches!(answer, Acquire::Queued { .. })) else {
            return answer;
        };
        let wire = self.link.target.wire(&claim.key);
        if had_channel {
            shards.waits(&wire, &claim.key);
            return answer;
        }
        // Boxed, because it is rare and large: every claim would allocate and move its size.
        let subscribed = Box::pin(async {
            if !shards.subscribe(&wire, &claim.key).await {
                return None;
            }
            // A node of a quorum has no waiters, so there is no proposal.
            self.send_claim(session, &claim.with_intent(Intent::Poll), None).await.ok()
        });
        // The claim was executed and is in the queue. If the poll fails, the next one repeats it.
        subscribed.await.map_or(answer, |polled| polled.unwrap_or(Acquire::Gone))
    }

    /// `None` if the claim already holds the key and a poll must confirm it.
    async fn send_claim(
        &self,
        session: &Session,
        claim: &Claim,
        proposal: Option<u64>,
    ) -> Result<Option<Acquire>, Unknown> {
        let (node, wire) = (self.link.node(), self.link.target.wire(&claim.key));
        if let Some(quarantine) = self.quarantine() {
            quarantine.check(node, claim.ttl)?;
        }
        let mut steps = Steps::NEW;
        loop {
            let answer = self.send_checked(session, claim, proposal).await?;
            let unread = self.link.note_unread(&wire, &answer);
            match reply::read_acquire(node, answer, claim.block, self.clock.wall_micros())? {
                Claimed::Answered(answer) => return Ok(Some(answer)),
                Claimed::Yours => return Ok(None),
                Claimed::More if steps.more(self.link.target.limit) => {}
                Claimed::More => break,
                Claimed::Conflict(mode) => return Err(claim.conflicting(node, mode)),
                Claimed::Unreadable => return Err(unread::stuck(node, &wire, unread.as_ref())),
            }
        }
        Err(Unknown::new(node, Fault::Busy, "the queue has very many dead waiters; they are removed step by step"))
    }

    /// If the server requires a handshake, sends it and repeats the claim on the same connection, because another one might
    /// lead to another server.
    async fn send_checked(&self, session: &Session, claim: &Claim, proposal: Option<u64>) -> Result<Value, Unknown> {
        let node = self.link.node();
        let answer = self.send_once(session, claim, proposal).await?;
        match Refusal::read(node, self.quarantine(), &answer)? {
            None => return Ok(answer),
            Some(Refusal::Cause(cause)) => {
                if let Some(rest) = cause.nodes().iter().find_map(|node| node.passes_in) {
                    self.link.warn_of(session, &MarkerState::Quarantined(rest));
                }
                return Err(cause);
            }
            Some(Refusal::Handshake) => {}
        }
        if self.in_trial {
            // A handshake would write the marker.
            return Err(Unknown::new(node, Fault::Quarantined, "its marker belongs to another run"));
        }
        if let Some(quarantine) = self.quarantine()
            // Boxed, because it is rare and large: every claim would allocate and move its size.
            && let MarkerState::Quarantined(rest) = Box::pin(self.link.handshake(session, quarantine)).await?
        {
            return Err(quarantine::quarantined(node, rest));
        }
        let answer = self.send_once(session, claim, proposal).await?;
        match Refusal::read(node, self.quarantine(), &answer)? {
            None => Ok(answer),
            Some(Refusal::Cause(cause)) => Err(cause),
            Some(Refusal::Handshake) => Err(Unknown::new(node, Fault::Busy, "its marker was deleted again")),
        }
    }

    async fn send_once(&self, session: &Session, claim: &Claim, proposal: Option<u64>) -> Result<Value, Unknown> {
        let wire = self.link.target.wire(&claim.key);
        let channel = session.channel(&wire);
        let path = if session.has_claimed.load(Ordering::Relaxed) { Path::Fast } else { Path::Whole };
        let token = proposal.map_or_else(|| Requested::Own(self.clock.wall_micros()), Requested::Proposed);
        let acquire = |epoch_check: EpochCheck<'_>| script::acquire(&wire, claim, path, token, &channel, epoch_check);
        let common = || (path == Path::Fast && script::is_common(claim, token)).then(|| Common::claim(&wire, claim));
        let answer = self.call_common(session, &wire, common, acquire).await.map_err(|error| self.unknown(&error))?;
        session.has_claimed.store(true, Ordering::Relaxed);
        session.ensure_master(self.link.node()).await?;
        Ok(answer)
    }

    /// A foreign holder notifies no waiter of its release. For the first waiter, the server tracks the key.
    async fn watch_foreign(&self, session: &Session, key: &Key, answer: &Acquire) {
        let Acquire::Queued { ahead: 0, occupied, .. } = answer else { return };
        if matches!(occupied.holders.first(), Occupant::Foreign(_)) {
            self.watch_key(session, key).await;
        }
    }

    pub(super) async fn watch_key(&self, session: &Session, key: &Key) {
        if !session.server_info.tracking {
            return;
        }
        let mut watch = redis::pipe();
        watch.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS").arg(&*self.link.target.wire(key));
        let answers = session.send_all(&watch).await.unwrap_or_default();
        if matches!(answers.get(1), Some(Ok(Value::Int(0)))) {
            self.link.push_handler.changed(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Backend, Holder, HolderId, Owner, Release, Ttl};
    use fencelock_testkit::ScriptedServer;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// A queue that never ends, of a server each of whose replies takes 50 ms.
    #[tokio::test]
    async fn a_queue_with_very_many_dead_waiters_is_shortened_for_no_longer_than_one_request_may_take() {
        for reply in ["*1\r\n$4\r\nmore\r\n", "*2\r\n$8\r\nreleased\r\n:1\r\n"] {
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let server = ScriptedServer::start(move |words| {
                if words[0] != "EVALSHA" {
                    return ScriptedServer::greeting(words).unwrap_or_else(|| b":0\r\n".to_vec());
                }
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
                reply.as_bytes().to_vec()
            });
            let server = server.unwrap();
            let redis = Redis::lazy(&server.url()).unwrap();
            let holder = Holder { id: HolderId::from_bytes([1; 16]), owner: Owner::from_text("test:1") };
            let claim = Claim::new(Key::new("k").unwrap(), holder, Ttl::default(), Intent::Try);
            if reply.contains("more") {
                let refused = redis.acquire(&claim).await.unwrap_err().to_string();
                assert!(refused.contains("very many dead waiters"), "{refused}");
            } else {
                assert_eq!(redis.release(&claim.key, &claim.holder.id).await.unwrap(), Release::Released);
            }
            assert!((2..=25).contains(&calls.load(Ordering::Relaxed)), "{calls:?} calls within a second");
        }
    }
}
