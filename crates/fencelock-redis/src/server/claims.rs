//! Claims of a lock, the subscriptions that wake waiters, and changes of a hold that replicas must confirm.

use super::Redis;
use crate::connection::session::Session;
use crate::scripts::combined::Common;
use crate::scripts::quarantine::{EpochCheck, MarkerState};
use crate::scripts::reply::{Claimed, Evicting, StoredLock};
use crate::scripts::script::Requested;
use crate::scripts::{quarantine, reply, script, shared};
use fencelock_core::{
    Acquire, BootClock, Claim, ClaimReply, Clock, Downgrade, Eviction, Fault, HolderInfo, Holding, Intent, Key,
    Occupant, Renew, Renewal, Resize, Sent, Unknown,
};
use redis::Value;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

impl Redis {
    /// Claims a key. `proposal` is that of a quorum. All of it is sent on one connection, because another one might lead to another server.
    pub(crate) async fn claim(&self, claim: &Claim, proposal: Option<u64>) -> ClaimReply {
        let session = match self.link.session().await {
            Ok(session) => session,
            Err(cause) => return ClaimReply::not_sent(cause),
        };
        if let Some(cause) = session.server_info.no_release.as_ref().filter(|_| !self.in_trial) {
            return ClaimReply::not_sent(cause.clone());
        }
        if let Err(cause) = self.check_ttl(claim.ttl) {
            return ClaimReply::not_sent(cause);
        }
        let sent = Sent::At(BootClock.now());
        let redis_key = self.link.target.redis_key(&claim.key);
        let channel = session.channel(&redis_key);
        let answer = match self.send_claim(&session, &redis_key, channel.as_deref(), claim, proposal).await {
            // Boxed, because it is large: every claim of a single server would move its size.
            Ok(answer) if matches!(answer, Acquire::Queued { .. }) || session.acks.is_some() => {
                Box::pin(self.after_claim(&session, &redis_key, claim, answer, channel.is_some())).await
            }
            answer => answer,
        };
        ClaimReply { sent, answer }
    }

    /// What follows an answer: the messages that wake a waiter, and the confirmation of a grant by replicas.
    async fn after_claim(
        &self,
        session: &Session,
        redis_key: &str,
        claim: &Claim,
        mut answer: Acquire,
        had_channel: bool,
    ) -> Result<Acquire, Unknown> {
        if let Acquire::Queued { ahead, occupied, .. } = &answer {
            // A foreign holder notifies no waiter of its release. For the first waiter, the server tracks the key.
            if *ahead == 0 && matches!(occupied.holders.first(), Occupant::Foreign(_)) {
                self.watch_key(session, &claim.key).await;
            }
            // The first claim that waits in a hash slot of a cluster subscribes to the channel of the slot. A poll then sends the
            // channel to the server. Until then the server hands over the lock without a message.
            if let Some(shards) = &session.shards {
                if had_channel {
                    shards.waits(redis_key, &claim.key);
                } else if shards.subscribe(redis_key, &claim.key).await {
                    // The claim was executed and is in the queue. If the poll fails, the next one repeats it. A quorum has no
                    // nodes of a cluster, so there is no proposal.
                    let (poll, channel) = (claim.with_intent(Intent::Poll), session.channel(redis_key));
                    let polled = self.send_claim(session, redis_key, channel.as_deref(), &poll, None).await;
                    answer = polled.unwrap_or(answer);
                }
            }
        }
        if session.acks.is_some() && matches!(answer, Acquire::Granted { .. }) {
            // A grant is renewed immediately on the connection that confirms renewals, and counts if the renewal does. No lease is too
            // long for it: a poll may have a shorter TTL than the last renewal of its holder.
            let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
            self.confirm(session, redis_key, &renewal).await?;
        }
        Ok(answer)
    }

    /// Sends a claim until it is answered: again while the script has work left and after a handshake, and as a poll if it already
    /// holds the key.
    async fn send_claim(
        &self,
        session: &Session,
        redis_key: &str,
        channel: Option<&str>,
        claim: &Claim,
        proposal: Option<u64>,
    ) -> Result<Acquire, Unknown> {
        let (node, mut is_marked, mut poll) = (self.link.node(), false, None);
        // The caller waits for all calls of the script as for one request.
        let until = Instant::now() + self.link.target.limit;
        loop {
            let claim = poll.as_deref().unwrap_or(claim);
            let has_claimed = session.has_claimed.load(Ordering::Relaxed);
            let is_common = has_claimed && proposal.is_none() && script::is_common(claim);
            let acquire = |epoch_check: EpochCheck<'_>| {
                let token = proposal.map_or_else(|| Requested::Own(BootClock.wall_micros()), Requested::Proposed);
                script::acquire(redis_key, claim, is_common, token, channel, epoch_check)
            };
            let common = || is_common.then(|| Common::claim(redis_key, claim));
            let answer = self.call_lock(session, redis_key, common, acquire).await?;
            session.has_claimed.store(true, Ordering::Relaxed);
            session.ensure_master(node).await?;
            if let Value::Int(last) = answer {
                return reply::read_granted(node, last, claim.block);
            }
            match quarantine::needs_handshake(node, self.quarantine(), &answer) {
                Ok(false) => {}
                Ok(true) if is_marked => return Err(Unknown::new(node, Fault::Busy, "its marker was deleted again")),
                Ok(true) => {
                    // Boxed, because it is rare and large: every claim would allocate and move its size.
                    Box::pin(self.begin_epoch(session)).await?;
                    is_marked = true;
                    continue;
                }
                Err(cause) => {
                    if let Some(rest) = cause.nodes().iter().find_map(|node| node.passes_in) {
                        self.link.warn_of(session, &MarkerState::Quarantined(rest));
                    }
                    return Err(cause);
                }
            }
            let unread = self.link.note_unread(redis_key, &answer);
            match reply::read_acquire(node, answer, BootClock.wall_micros())? {
                Claimed::Answered(answer) => return Ok(answer),
                // Not the answer to a poll.
                Claimed::Yours if poll.is_some() => return Ok(Acquire::Gone),
                Claimed::Yours => poll = Some(Box::new(claim.with_intent(Intent::Poll))),
                Claimed::More if Instant::now() < until => {}
                Claimed::More => break,
                Claimed::Unreadable => return Err(reply::stuck(node, redis_key, unread.as_ref())),
            }
        }
        Err(Unknown::new(node, Fault::Busy, "the queue has very many dead waiters; they are removed step by step"))
    }

    /// Sends the handshake that the server requires before it grants.
    async fn begin_epoch(&self, session: &Session) -> Result<(), Unknown> {
        let node = self.link.node();
        if self.in_trial {
            // A handshake would write the marker.
            return Err(Unknown::new(node, Fault::Quarantined, "its marker belongs to another run"));
        }
        let Some(quarantine) = self.quarantine() else { return Ok(()) };
        match self.link.handshake(session, quarantine).await? {
            MarkerState::Quarantined(rest) => Err(quarantine::quarantined(node, rest)),
            _ => Ok(()),
        }
    }

    pub(crate) async fn watch_key(&self, session: &Session, key: &Key) {
        if !session.server_info.tracking {
            return;
        }
        let mut watch = redis::pipe();
        watch.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS").arg(&*self.link.target.redis_key(key));
        let answers = session.send_all(&watch).await.unwrap_or_default();
        if matches!(answers.get(1), Some(Ok(Value::Int(0)))) {
            self.link.push_handler.changed(key);
        }
    }

    async fn confirm(&self, session: &Session, redis_key: &str, renewal: &Renewal) -> Result<(), Unknown> {
        let call = script::renew(redis_key, &renewal.holder, renewal.ttl.get(), renewal.assumed);
        match self.renew_calls(session, vec![call]).await.pop() {
            Some(Ok(Renew::Renewed { .. })) => Ok(()),
            // The master has granted the lock, even if replicas did not confirm it.
            Some(Err(cause)) if cause.changed_nothing() => {
                let text = format!("granted, but not confirmed: {cause}");
                Err(Unknown::new(self.link.node(), Fault::Timeout, text))
            }
            Some(Err(cause)) => Err(cause),
            // Only a poll can determine the current state.
            Some(Ok(Renew::Absent | Renew::TakenBy(_))) | None => {
                Err(Unknown::new(self.link.node(), Fault::Timeout, "the lease ended before replicas confirmed it"))
            }
        }
    }

    /// Turns an exclusive hold into a shared one.
    pub(crate) async fn share(&self, renewal: &Renewal, token: Requested) -> Result<Downgrade, Unknown> {
        let (node, redis_key) = (self.link.node(), self.link.target.redis_key(&renewal.key));
        self.check_ttl(renewal.ttl)?;
        let session = self.link.session().await?;
        let call = script::downgrade(&redis_key, &renewal.holder, renewal.ttl.get(), token, self.epoch_check(&session));
        let answer = self.call_over(&session, call).await?;
        self.link.note_unread(&redis_key, &answer);
        let (answer, left) = reply::read_downgrade(node, answer)?;
        if left {
            self.continue_hand_off(&renewal.key).await;
        }
        if session.acks.is_some() && matches!(answer, Downgrade::Downgraded { .. }) {
            self.confirm(&session, &redis_key, renewal).await?;
        }
        Ok(answer)
    }

    /// One script changes the limit. If there are more waiters or ended holds than it examines, the same script is called again.
    /// The change is then complete, so an error of a later call is not returned; waiters that were not examined are refused at
    /// their next poll.
    pub(crate) async fn set_limit(&self, key: &Key, limit: u32) -> Result<Resize, Unknown> {
        Resize::check(self.link.node(), limit)?;
        let (mut answer, mut ticket) = self.resize_once(key, limit, None).await?;
        let until = Instant::now() + self.link.target.limit;
        while let (Resize::Resized(done), Some(examined)) = (&answer, &ticket)
            && Instant::now() < until
        {
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
        let (node, redis_key, now) = (self.link.node(), self.link.target.redis_key(key), BootClock.wall_micros());
        let answer = self.send(|epoch_check| script::resize(&redis_key, limit, done, now, epoch_check)).await?;
        self.link.note_unread(&redis_key, &answer);
        reply::read_resize(node, answer, limit)
    }
}

// Evicts the hold of another client.

async fn stored_lock(redis: &Redis, key: &Key) -> Result<Option<StoredLock>, Unknown> {
    let free = |epoch_check: EpochCheck<'_>| {
        script::inspect(&redis.link.target.redis_key(key), 1, EpochCheck { mark: None, ..epoch_check })
    };
    reply::read_inspect(redis.link.node(), redis.send(free).await?)
}

/// Evicts the hold, if it is a lock and has not changed. Of a lock that several clients hold, the listed holds; all of them, if
/// `holding` counts holders that it does not list.
pub(super) async fn evict(redis: &Redis, holding: &Holding) -> Result<Eviction, Unknown> {
    let (key, redis_key) = (&holding.key, redis.link.target.redis_key(&holding.key));
    let Some(seen) = stored_lock(redis, key).await? else { return Ok(Eviction::Changed(None)) };
    let (now, listed) = (seen.holding(key, BootClock.wall_micros()), shared::listed(holding));
    let (value, what) = if seen.is_shared() {
        let is_same =
            |hold: &HolderInfo| now.holders.iter().any(|n| (&n.occupant, n.fence) == (&hold.occupant, hold.fence));
        let all = holding.holders.count() as usize > holding.holders.iter().count();
        if all && holding.holders.iter().any(is_same) {
            (shared::value(&seen.value), Evicting::Shared)
        } else {
            (listed.as_bytes(), Evicting::Holds)
        }
    } else {
        let Some(hold) = holding.hold_of(&seen.occupant()) else { return changed(redis, key).await };
        if seen.is_later() {
            let why = "is locked by a later version of fencelock, and was not changed: use that version";
            return Ok(Eviction::Refused(format!("{key:?} {why}")));
        }
        let Some(what) = seen.evicting() else {
            return Ok(Eviction::Refused(format!("{} is not a lock, and was not changed", seen.occupant())));
        };
        // The caller inspected a hold with an expiry. A value without one may be data, and must not be deleted.
        if what != Evicting::Ours && hold.expiry.span().is_some() != seen.expires() {
            return Ok(Eviction::Changed(Some(Box::new(now))));
        }
        (&*seen.value, what)
    };
    let evict =
        |epoch_check: EpochCheck<'_>| script::evict(&redis_key, value, what, BootClock.wall_micros(), epoch_check);
    let answer = redis.send(evict).await?;
    redis.link.note_unread(&redis_key, &answer);
    let Some(left) = reply::read_evict(redis.link.node(), answer)? else { return changed(redis, key).await };
    // The server does not report a change to the connection that made it.
    redis.link.push_handler.changed(key);
    if left {
        redis.continue_hand_off(key).await;
    }
    Ok(Eviction::Evicted)
}

async fn changed(redis: &Redis, key: &Key) -> Result<Eviction, Unknown> {
    let now = stored_lock(redis, key).await?;
    Ok(Eviction::Changed(now.map(|seen| Box::new(seen.holding(key, BootClock.wall_micros())))))
}
