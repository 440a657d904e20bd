//! The claims of one task: claim, wait in the queue of the backend, claim again, and clean up.

mod request;

use super::env::spread;
use super::releases::STRAGGLER;
use super::{AcquireFailure, Config, FailureReason, KeyRequest, PendingRelease, Rng};
use crate::{
    Claim, Expiry, HandOffBounds, HolderId, Intent, Key, Lease, Moment, Occupied, RetryPlan, TokenBlock, Unknown,
};
use std::num::NonZeroU32;
use std::time::Duration;

pub use request::{AcquireRequest, LAST_ANSWER, LeaseSharing, Retry};

/// The number of consecutive attempts that may lose their queue position before the next one is delayed.
pub(crate) const HASTY_ATTEMPTS: u32 = 3;

/// A claim that waits at the backend, but currently for no task.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Spare {
    pub(crate) claim: Box<PendingClaim>,
    /// Until this time the next task may take it over.
    pub(crate) until: Moment,
}

/// A hand-off, as described by its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HandOff {
    pub(crate) tokens: TokenBlock,
    pub(crate) claim_ttl: Duration,
}

/// What a holder id of this client may have on the backend: a queue position, or already the key.
///
/// A task that gives up transfers it to the next one. The holder id stays the same, so the server does not notice.
#[derive(Debug, Clone, Hash)]
pub(crate) struct PendingClaim {
    pub(crate) claim: Claim,
    /// When the last claim that was answered with a position in the queue was sent, and its answer.
    pub(crate) answered: Option<(Moment, HandOffBounds)>,
    /// Until this time an unanswered request may still arrive, even after later requests were answered.
    pub(crate) stray_until: Moment,
    /// Claims sent by this holder.
    pub(crate) requests: u32,
    pub(crate) hand_off: Option<HandOff>,
    /// A new claim may succeed.
    pub(crate) notified: bool,
    /// When to poll next, if its task got another lease meanwhile. The task that takes the claim over waits until then.
    pub(crate) polled_at: Moment,
}

impl PendingClaim {
    pub(crate) fn new(key: &Key, request: &AcquireRequest, holder: HolderId) -> Self {
        let holder = crate::Holder { id: holder, owner: request.owner.clone() };
        let intent = if request.queues() { Intent::Enqueue } else { Intent::Try };
        let claim = Claim::new(key.clone(), holder, request.ttl, intent).with_mode(request.mode);
        let (answered, stray_until, requests, hand_off, notified) = (None, Moment::from_micros(0), 0, None, false);
        Self { claim, answered, stray_until, requests, hand_off, notified, polled_at: Moment::from_micros(0) }
    }

    /// The claim is in the queue of the backend. Returns whether that was not known: the reply to the first request may have been
    /// lost, or another task may have taken the claim over before it arrived.
    pub(crate) fn queued(&mut self, sent: Moment, bounds: HandOffBounds) -> bool {
        self.claim.intent = Intent::Poll;
        self.answered.replace((sent, bounds)).is_none()
    }

    /// A release of everything that the holder may have.
    pub(crate) fn release(&self, now: Moment) -> PendingRelease {
        PendingRelease {
            key: self.claim.key.clone(),
            holder: self.claim.holder.id,
            until: now + self.claim.ttl.get(),
            // A request in flight was sent no later than now.
            stray_until: self.stray_until.min(now + STRAGGLER),
            is_hold: false,
        }
    }

    /// The lease of a hand-off, if its message is trusted.
    pub(crate) fn accept_hand_off(&mut self, config: &Config, now: Moment) -> Option<(TokenBlock, Lease)> {
        let HandOff { tokens, claim_ttl } = self.hand_off.take()?;
        let (sent, bounds) = self.answered?;
        let lease = bounds.accept_hand_off(sent, tokens, claim_ttl, self.claim.ttl, config.drift, now)?;
        Some((tokens, if config.capabilities.expires { lease } else { Lease::endless() }))
    }

    /// The reply to a poll after a hand-off contains only the last token. The message of that hand-off, if it has
    /// arrived, contains all of them. A token is granted once, so a block that ends with the same token belongs to the
    /// same grant.
    pub(crate) fn complete_block(&mut self, tokens: TokenBlock) -> TokenBlock {
        let same = |hand_off: &HandOff| !hand_off.claim_ttl.is_zero() && hand_off.tokens.last() == tokens.last();
        self.hand_off.take().filter(same).map_or(tokens, |hand_off| hand_off.tokens)
    }
}

/// A claiming task: its current attempt, and the state that outlives a single attempt.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Claiming {
    pub(crate) attempt: Option<PendingClaim>,
    /// The backend may have a hold or a queue position of this holder.
    pub(crate) left_behind: bool,
    pub(crate) phase: Phase,
    started: Moment,
    pub(crate) deadline: Moment,
    attempts: u32,
    pub(crate) out_of_queue: u32,
    /// When the backend answered last, or the beginning of the wait for its first answer.
    pub(crate) last_answer: Moment,
    /// Consecutive claims that were refused or not answered, over all attempts.
    failures: u32,
    pub(crate) occupied: Option<Occupied>,
    /// The last reply was that servers are in quarantine.
    pub(crate) quarantine: Option<Unknown>,
}

/// What the task waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The time when it may begin an attempt.
    #[default]
    Delayed,
    /// A notification, or the time of the next poll.
    Sleeping(Moment),
    /// The reply to a claim that was sent at this time, and what was left behind before.
    Requesting(Moment, bool),
    /// The reply to an inspection, which is sent instead of a claim.
    Inspecting,
    /// The reply to a release; this result follows.
    Leaving(Box<FailureReason>),
}

impl Claiming {
    pub(crate) fn new(request: &AcquireRequest, started: Moment, last_answer: Moment) -> Self {
        Self { started, deadline: request.deadline(started), last_answer, ..Self::default() }
    }

    /// Whether its task has no request in flight, so that it may get another lease now.
    pub(crate) const fn is_at_rest(&self) -> bool {
        matches!(self.phase, Phase::Delayed | Phase::Sleeping(_))
    }

    /// Whether it may claim again before its time: it sleeps, and a notification has come.
    pub(crate) fn is_woken(&self) -> bool {
        matches!(self.phase, Phase::Sleeping(_)) && self.is_notified()
    }

    /// Whether the claim may have been granted already.
    pub(crate) fn is_notified(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.notified)
    }

    pub(crate) fn is_over(&self, request: &AcquireRequest, now: Moment) -> bool {
        now >= self.deadline || request.retry.is_some_and(|retry| self.attempts >= retry.times)
    }

    /// Another holder has the key. Returns whether the task knew it already.
    pub(crate) fn on_busy(&mut self, occupied: Occupied, now: Moment) -> bool {
        self.last_answer = now;
        self.failures = 0;
        self.quarantine = None;
        self.occupied.replace(occupied).is_some()
    }

    /// The backend did not answer. `Err` if the task must give up: the error is permanent, its wait is over, or it has no limit, and
    /// there was no answer for as long as a lease lasts. `known` is the holder that another task of this client was told; after so long
    /// without an answer, no holder is known any more.
    pub(crate) fn on_trouble(
        &mut self,
        request: &AcquireRequest,
        mut cause: Unknown,
        known: Option<&Occupied>,
        now: Moment,
    ) -> Result<Unknown, FailureReason> {
        self.failures = self.failures.saturating_add(1);
        let over = self.is_over(request, now);
        if cause.is_quarantine() {
            // A quarantine ends by itself like a lease, so the task waits for as long.
            self.last_answer = now;
            self.quarantine = Some(cause.clone());
        } else if let Some(quarantined) = self.quarantine.take().filter(|_| over && !cause.is_permanent()) {
            // The wait ended before the last reply; the error before it is more useful.
            cause = quarantined;
        }
        let is_silent = now.since(self.last_answer) >= request.ttl.get();
        if over
            && !is_silent
            && !cause.is_permanent()
            && !cause.is_quarantine()
            && let Some(occupied) = self.occupied.as_ref().or(known)
        {
            // The holder was reported before.
            return Err(FailureReason::Busy(Some(occupied.clone())));
        }
        if cause.is_permanent() || is_silent && request.wait.is_none() || over {
            return Err(FailureReason::Unreachable(cause));
        }
        Ok(cause)
    }

    /// The pause before the next claim.
    pub(crate) fn pause(&self, request: &AcquireRequest, config: &Config, now: Moment, rng: &mut dyn Rng) -> Duration {
        let capabilities = &config.capabilities;
        let (failing, fresh) = (self.failures > 0, capabilities.fresh_holders);
        let plan = match request.retry {
            Some(retry) => RetryPlan::every(retry.pause),
            None if failing || !capabilities.queues => capabilities.polls,
            None => RetryPlan::WOKEN,
        };
        // The state before a failure does not predict when the backend recovers.
        let known = self.occupied.as_ref().filter(|_| !failing && request.retry.is_none());
        let expiry = known.map_or(Expiry::Never, |occupied| occupied.expiry);
        let requests = match &self.attempt {
            Some(attempt) if !fresh => attempt.requests,
            _ => self.attempts,
        };
        let requests = if failing && !fresh { self.failures.saturating_sub(1) } else { requests.saturating_sub(1) };
        let pause = plan.pause(requests, expiry, rng.next_u64());
        let pause = if fresh && request.retry.is_none() { spread(pause, rng.next_u64()) } else { pause };
        pause.min(self.deadline.since(now))
    }

    /// The request to send now: the claim, which counts as sent from now on, or an inspection instead of it. `block` is the number of
    /// tokens to request, if the lease may be shared.
    pub(crate) fn next_request(
        &mut self,
        block: Option<NonZeroU32>,
        inspects: bool,
        now: Moment,
    ) -> Option<KeyRequest> {
        let attempt = self.attempt.as_mut()?;
        self.attempts += 1;
        attempt.requests += 1;
        if inspects {
            self.phase = Phase::Inspecting;
            return Some(KeyRequest::Inspect);
        }
        attempt.claim.block = block.unwrap_or(attempt.claim.block);
        self.phase = Phase::Requesting(now, std::mem::replace(&mut self.left_behind, true));
        Some(KeyRequest::Claim(Box::new(attempt.claim.clone())))
    }

    /// Records what an unanswered claim may have left on the backend, besides what was left `before`. `sent` is false if it never left
    /// this process.
    pub(crate) fn unanswered(&mut self, cause: &Unknown, sent: bool, before: bool, now: Moment) {
        let Some(attempt) = &mut self.attempt else { return };
        if !sent || cause.changed_nothing() {
            // This claim had no effect; an earlier one of the same holder may have had one.
            self.left_behind = before;
        } else if cause.not_replicated().is_none() && !cause.is_permanent() {
            attempt.stray_until = now + STRAGGLER;
        }
        // The claim may have been executed. A poll finds out without adding a second queue position.
        if self.left_behind && attempt.claim.intent == Intent::Enqueue {
            attempt.claim.intent = Intent::Poll;
        }
    }

    /// Takes over the attempt of another task that gave up, and sleeps until its next poll, unless that is due.
    pub(crate) fn resume(&mut self, pending: PendingClaim, now: Moment) {
        if !pending.notified && now < pending.polled_at {
            self.phase = Phase::Sleeping(pending.polled_at.min(self.deadline));
        }
        (self.attempt, self.left_behind) = (Some(pending), true);
    }

    /// Ends the attempt. Returns what must be released.
    pub(crate) fn end_attempt(&mut self, now: Moment) -> Option<PendingRelease> {
        let mut attempt = self.attempt.take()?;
        if let Phase::Requesting(..) = self.phase {
            // A reply that no task waits for counts as missing.
            attempt.stray_until = Moment::NEVER;
        }
        let left = std::mem::take(&mut self.left_behind) || now < attempt.stray_until;
        left.then(|| attempt.release(now))
    }

    /// Whether the next task may take over this attempt. One that is being released cannot be used.
    pub(crate) const fn is_transferable(&self) -> bool {
        self.left_behind && !matches!(self.phase, Phase::Leaving(_))
    }

    /// The attempt that the next task may take over.
    pub(crate) fn transfer(&mut self, now: Moment) -> Option<PendingClaim> {
        let mut attempt = if self.is_transferable() { self.attempt.take()? } else { return None };
        if let Phase::Requesting(..) = self.phase {
            attempt.stray_until = now + STRAGGLER;
        }
        self.left_behind = false;
        (attempt.claim.intent, attempt.polled_at) = (Intent::Poll, Moment::default());
        Some(attempt)
    }

    pub(crate) fn failure(&self, reason: FailureReason, now: Moment) -> AcquireFailure {
        AcquireFailure { reason, waited: now.since(self.started), attempts: self.attempts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, Drift, Invalid};

    struct NoJitter;

    impl Rng for NoJitter {
        fn next_u64(&mut self) -> u64 {
            0
        }

        fn holder_id(&mut self) -> Result<HolderId, Invalid> {
            Ok(HolderId::from_bytes([1; 16]))
        }
    }

    /// The pauses after the first and after a hundred claims.
    fn pauses(capabilities: Capabilities) -> [Duration; 2] {
        let config =
            Config { backend: String::new(), capabilities, drift: Drift::default(), sharing: None, turn_limit: None };
        let request = AcquireRequest::default();
        [1, 100].map(|attempts| {
            let mut claiming = Claiming::new(&request, Moment::default(), Moment::default());
            claiming.attempts = attempts;
            claiming.pause(&request, &config, Moment::default(), &mut NoJitter)
        })
    }

    #[test]
    fn a_backend_without_a_queue_says_how_often_it_is_polled() {
        let mut capabilities = Capabilities::default();
        assert_eq!(pauses(capabilities), [Duration::from_millis(2), Duration::from_millis(250)]);
        capabilities.polls = RetryPlan::new(Duration::from_secs(1), Duration::from_secs(20));
        assert_eq!(pauses(capabilities), [Duration::from_secs(1), Duration::from_secs(20)]);
        capabilities.polls = RetryPlan::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(pauses(capabilities), [Duration::from_millis(1); 2], "never without a pause");
        capabilities.queues = true;
        assert_eq!(pauses(capabilities), [Duration::from_secs(1); 2], "a queue wakes its waiters");
    }
}
