//! Claims of a lock, the subscriptions that wake waiters, and changes of a hold that replicas must confirm.

use super::{MOST_STEPS, Redis};
use crate::connection::session::Session;
use crate::scripts::combined::Common;
use crate::scripts::quarantine::{self, EpochCheck, MarkerState, Refusal};
use crate::scripts::reply::{self, Claimed, Remaining};
use crate::scripts::script::{self, Path, Requested};
use crate::scripts::unread;
use fencelock_core::{Acquire, Claim, Downgrade, Fault, Intent, Key, Occupant, Renew, Renewal, Resize, Unknown};
use redis::Value;
use std::sync::atomic::Ordering;

impl Redis {
    /// `proposal` is that of a quorum.
    pub(crate) async fn claim(&self, claim: &Claim, proposal: Option<u64>) -> Result<Acquire, Unknown> {
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
        for _ in 0..MOST_STEPS {
            let answer = self.send_checked(session, claim, proposal).await?;
            let unread = self.link.note_unread(&wire, &answer);
            match reply::read_acquire(node, answer, claim.block, self.clock.wall_micros())? {
                Claimed::Answered(answer) => return Ok(Some(answer)),
                Claimed::Yours => return Ok(None),
                Claimed::More => {}
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

    pub(crate) async fn watch_key(&self, session: &Session, key: &Key) {
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

    /// A grant is renewed immediately on the connection that confirms renewals, and counts if the renewal does.
    pub(crate) async fn confirmed(
        &self,
        session: &Session,
        claim: &Claim,
        answer: Acquire,
    ) -> Result<Acquire, Unknown> {
        if session.acks.is_some() && matches!(answer, Acquire::Granted { .. }) {
            // No lease is too long for it: a poll may have a shorter TTL than the last renewal of its holder.
            let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
            self.confirm(session, &renewal).await?;
        }
        Ok(answer)
    }

    async fn confirm(&self, session: &Session, renewal: &Renewal) -> Result<(), Unknown> {
        let wire = self.link.target.wire(&renewal.key);
        let call = script::renew(&wire, &renewal.holder, renewal.ttl.get(), renewal.assumed);
        match self.renew_calls(session, vec![call]).await.pop() {
            Some(Ok(Renew::Renewed { .. })) => Ok(()),
            Some(Err(unknown)) => Err(self.after_the_grant(unknown)),
            // Only a poll can determine the current state.
            Some(Ok(Renew::Absent | Renew::TakenBy(_))) | None => {
                Err(Unknown::new(self.link.node(), Fault::Timeout, "the lease ended before replicas confirmed it"))
            }
        }
    }

    /// The master has granted the lock, even if replicas did not confirm it.
    fn after_the_grant(&self, cause: Unknown) -> Unknown {
        if !cause.changed_nothing() {
            return cause;
        }
        Unknown::new(self.link.node(), Fault::Timeout, format!("granted, but not confirmed: {cause}"))
    }

    /// Turns an exclusive hold into a shared one.
    pub(crate) async fn share(&self, renewal: &Renewal, token: Requested) -> Result<Downgrade, Unknown> {
        let (node, wire) = (self.link.node(), self.link.target.wire(&renewal.key));
        if let Some(quarantine) = self.quarantine() {
            quarantine.check(node, renewal.ttl)?;
        }
        let session = self.session().await?;
        let call = script::downgrade(&wire, &renewal.holder, renewal.ttl.get(), token, self.epoch_check(&session));
        let answer = self.call_over(&session, &call).await?;
        Refusal::check(node, self.quarantine(), &answer)?;
        self.link.note_unread(&wire, &answer);
        let (answer, left) = reply::read_downgrade(node, answer)?;
        if left == Remaining::More {
            self.continue_hand_off(&renewal.key).await;
        }
        if session.acks.is_some() && matches!(answer, Downgrade::Downgraded { .. }) {
            self.confirm(&session, renewal).await?;
        }
        Ok(answer)
    }

    /// One script changes the limit. If there are more waiters or ended holds than it examines, the same script is called again.
    /// The change is then complete, so an error of a later call is not returned; waiters that were not examined are refused at
    /// their next poll.
    pub(crate) async fn set_limit(&self, key: &Key, limit: u32) -> Result<Resize, Unknown> {
        Resize::check(self.link.node(), limit)?;
        let (mut answer, mut ticket) = self.resize_once(key, limit, None).await?;
        for _ in 0..MOST_STEPS {
            let (Resize::Resized(done), Some(examined)) = (&answer, &ticket) else { break };
            let next = self.resize_once(key, limit, Some((done.before, examined))).await;
            let Ok((Resize::Resized(now), left)) = next else { break };
            (answer, ticket) = (Resize::Resized(now), left);
        }
        Ok(answer)
    }

    async fn resize_once(
        &self,
        key: &Key,
        limit: u32,
        done: Option<(u32, &str)>,
    ) -> Result<(Resize, Option<String>), Unknown> {
        let (node, wire, now) = (self.link.node(), self.link.target.wire(key), self.clock.wall_micros());
        let answer = self.call(|epoch_check| script::resize(&wire, limit, done, now, epoch_check)).await?;
        Refusal::check(node, self.quarantine(), &answer)?;
        self.link.note_unread(&wire, &answer);
        reply::read_resize(node, answer, limit)
    }
}
