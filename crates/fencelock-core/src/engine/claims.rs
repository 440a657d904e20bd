//! The claims of one task, as part of the engine of its key.

use super::Config;
use super::action::{Action, ClaimReport, Grant, Refusal, RefusalReason, Source, Step};
use super::claiming::{Claiming, HASTY_ATTEMPTS, PendingClaim, Phase};
use super::context::Context;
use super::key_engine::KeyEngine;
use super::waiter::{State, Waiter, WaiterId};
use crate::{
    Acquire, Expiry, Fault, Foreign, Holding, Intent, Lease, Moment, Occupant, Occupied, QueuePosition, Release,
    TokenBlock, Unknown,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// Claims of one task.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The claim of [`Step::Claim`] is about to be sent. If the task has lost its turn, this returns `false`, and it must not be sent.
    pub fn claim_sent(&mut self, id: WaiterId) -> bool {
        self.claiming(id).map(Claiming::sent).is_some()
    }

    /// The reply to a claim that was sent at `sent`; connecting does not count as part of the lease. An error without a
    /// call of [`KeyEngine::claim_sent`] means that connecting failed.
    pub fn claim_answered(
        &mut self,
        id: WaiterId,
        sent: Moment,
        answer: Result<Acquire, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        let was_sent = claiming.in_flight;
        claiming.in_flight = false;
        let cause = match answer {
            Ok(Acquire::Granted { tokens }) => return self.granted(id, sent, tokens, cx),
            Ok(Acquire::Gone) => {
                claiming.left_behind = false;
                claiming.out_of_queue += 1;
                self.end_attempt(id, cx);
                return self.next_attempt(id, cx);
            }
            Ok(Acquire::Busy(occupied)) => {
                claiming.left_behind = false;
                self.on_busy(id, None, occupied, cx);
                return self.claim_later(id, cx);
            }
            Ok(Acquire::Queued { ahead, last_fence, server_micros, occupied }) => {
                let position = QueuePosition::new(sent, last_fence, server_micros);
                if claiming.attempt.as_mut().is_some_and(|attempt| attempt.queued(position)) {
                    cx.act(Action::Queued);
                }
                self.on_busy(id, Some(ahead), occupied, cx);
                return self.claim_later(id, cx);
            }
            Err(cause) => cause,
        };
        claiming.unanswered(&cause, was_sent, cx.now);
        if cause.not_replicated().is_some() || cause.is_permanent() {
            return self.leave_then(id, RefusalReason::Unconfirmed(cause), cx);
        }
        // The claim may have been executed. A poll finds out without adding a second queue position.
        let left_behind = claiming.left_behind;
        if let Some(attempt) = claiming.attempt.as_mut().filter(|attempt| attempt.claim.intent == Intent::Enqueue)
            && left_behind
        {
            attempt.claim.intent = Intent::Poll;
        }
        match self.on_trouble(id, cause, cx) {
            Ok(()) => self.claim_later(id, cx),
            Err(reason) => self.refuse(id, reason, cx),
        }
    }

    /// The reply to [`Step::Inspect`].
    pub fn inspected(
        &mut self,
        id: WaiterId,
        answer: Result<Option<Holding>, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Step {
        match answer {
            Ok(seen) => {
                let first = self.first_in_line().unwrap_or_else(unknown_occupant);
                self.on_busy(id, None, seen.map_or(first, Occupied::from), cx);
            }
            Err(cause) => {
                if let Err(reason) = self.on_trouble(id, cause, cx) {
                    return self.refuse(id, reason, cx);
                }
            }
        }
        self.claim_later(id, cx)
    }

    /// The reply to [`Step::Leave`].
    pub fn left(&mut self, id: WaiterId, answer: Result<Release, Unknown>, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        // A server that does not allow it now will not do so later.
        claiming.left_behind = answer.is_err_and(|cause| !cause.is_permanent());
        match std::mem::replace(&mut claiming.phase, Phase::Requesting) {
            Phase::Leaving(reason) => self.refuse(id, *reason, cx),
            _ => Step::Wait,
        }
    }

    pub(super) fn claiming(&mut self, id: WaiterId) -> Option<&mut Claiming> {
        match &mut self.queue.get_mut(id)?.state {
            State::Claiming(claiming) => Some(claiming),
            State::Queued | State::Called(_) => None,
        }
    }

    pub(super) fn begin_claiming(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let in_line = self.queue.is_in_line(id);
        let (failing_since, yield_until) = (self.failing_since, self.leases.yield_until);
        let Some(waiter) = self.queue.get_mut(id) else { return Step::Wait };
        let fails = in_line && failing_since != Moment::NEVER;
        let failing_since = fails.then(|| failing_since.max(waiter.arrived));
        let mut claiming = Claiming::new(&waiter.request, waiter.arrived, failing_since);
        if let State::Called(Some(pending)) = std::mem::replace(&mut waiter.state, State::Queued) {
            claiming.resume(*pending);
        }
        let (yields, until) = (in_line && !claiming.is_notified(), yield_until.min(claiming.deadline));
        if let Some(until) = claiming.sleeps_on(cx.now) {
            waiter.state = State::Claiming(Box::new(claiming));
            return Step::Sleep { until, wakes: true };
        }
        waiter.state = State::Claiming(Box::new(claiming));
        if yields && cx.now < until {
            return Step::Sleep { until, wakes: false };
        }
        self.attempt(id, cx)
    }

    pub(super) fn attempt(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        if claiming.attempt.is_some() {
            // It takes over the claim of a task that gave up; the key may have been handed to it meanwhile.
            return self.hand_off(id, cx).unwrap_or_else(|| self.claim_now(id, cx));
        }
        let holder = match cx.rng.holder_id() {
            Ok(holder) => holder,
            Err(invalid) => return self.refuse(id, RefusalReason::Invalid(invalid), cx),
        };
        if let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) {
            claiming.begin(cx.key, request, holder);
            cx.act(Action::ClaimBegan(request.mode));
        }
        self.claim_now(id, cx)
    }

    pub(super) fn next_attempt(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        claiming.phase = Phase::Delayed;
        if claiming.out_of_queue > HASTY_ATTEMPTS {
            return Step::Sleep { until: cx.now + Duration::from_millis(10), wakes: false };
        }
        self.attempt(id, cx)
    }

    pub(super) fn claim_now(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let block = self.queue.is_in_line(id).then(|| NonZeroU32::new(self.block)).flatten();
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) else {
            return Step::Wait;
        };
        let Some(claim) = claiming.next_claim(block) else { return Step::Wait };
        // A task outside the queue does not overtake queued tasks, even if only this client knows them.
        let last = !request.queues() && cx.config.sharing.is_some();
        if last && self.queue.is_known_to_wait(claim.mode) { Step::Inspect } else { Step::Claim(Box::new(claim)) }
    }

    /// Sleeps before the next claim, unless the wait is over.
    pub(super) fn claim_later(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) else {
            return Step::Wait;
        };
        if claiming.is_over(request, cx.now) {
            let busy = RefusalReason::Busy(claiming.occupied.clone());
            if self.has_successor(id, cx.config) {
                return self.refuse(id, busy, cx);
            }
            return self.leave_then(id, busy, cx);
        }
        let until = cx.now + claiming.pause(request, cx.config, cx.now, cx.rng);
        (claiming.phase, claiming.polls_at) = (Phase::Sleeping, until);
        Step::Sleep { until, wakes: request.retry.is_none() }
    }

    pub(super) fn wake_up(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        if cx.config.capabilities.fresh_holders {
            // A rollback of this claim may still be in flight; it must not release the next claim of the same holder.
            self.end_attempt(id, cx);
            return self.next_attempt(id, cx);
        }
        self.hand_off(id, cx).unwrap_or_else(|| self.claim_now(id, cx))
    }

    /// Starts the hold immediately on a trusted hand-off message. The first renewal makes it a full lease.
    pub(super) fn hand_off(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Step> {
        let (config, now) = (cx.config, cx.now);
        let (tokens, lease) = self.claiming(id)?.attempt.as_mut()?.believe(config, now)?;
        self.grant(id, tokens, lease, Source::HandedOff, cx)
    }

    pub(super) fn granted(
        &mut self,
        id: WaiterId,
        sent: Moment,
        tokens: TokenBlock,
        cx: &mut Context<'_, W, L>,
    ) -> Step {
        let Some(attempt) = self.claiming(id).and_then(|claiming| claiming.attempt.as_mut()) else { return Step::Wait };
        let tokens = attempt.whole(tokens);
        let lease = cx.config.lease(sent, attempt.claim.ttl);
        if let Some(step) = self.grant(id, tokens, lease, Source::Claimed, cx) {
            return step;
        }
        let cause = Unknown::new(
            cx.config.backend.clone(),
            Fault::Timeout,
            "the lock was granted, but the lease had expired when the reply arrived",
        );
        if let Some(claiming) = self.claiming(id) {
            claiming.transferable = false;
        }
        match self.on_trouble(id, cause, cx) {
            Ok(()) => {
                self.end_attempt(id, cx);
                self.next_attempt(id, cx)
            }
            Err(reason) => self.refuse(id, reason, cx),
        }
    }

    /// `None` if the lease has already expired.
    pub(super) fn grant(
        &mut self,
        id: WaiterId,
        tokens: TokenBlock,
        lease: Lease,
        source: Source,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Step> {
        if lease.lapsed(cx.now) {
            cx.act(Action::GrantedTooLate);
            return None;
        }
        let in_line = self.queue.is_in_line(id);
        if in_line && self.queue.get(id)?.request.has_permits() {
            return self.grant_permits(id, tokens, lease, source, cx);
        }
        let Waiter { request, state: State::Claiming(claiming), .. } = self.queue.remove(id)? else { return None };
        let PendingClaim { claim, stray_until, .. } = claiming.attempt?;
        cx.act(Action::ClaimEnded(claim.mode));
        let (hold, tenure) = self.leases.begin(claim.holder.id, &request, tokens, lease, stray_until, cx);
        if in_line && let Some(limits) = &cx.config.sharing {
            (self.last_busy, self.failing_since) = (None, Moment::NEVER);
            self.leases.share(hold, tokens, limits, cx);
            self.admit(cx);
        }
        self.settle(None, cx);
        Some(Step::Granted(Grant { hold, tenure, source }))
    }

    pub(super) fn on_busy(&mut self, id: WaiterId, ahead: Option<u32>, occupied: Occupied, cx: &mut Context<'_, W, L>) {
        let in_line = self.queue.is_in_line(id);
        let Some(claiming) = self.claiming(id) else { return };
        let again = claiming.on_busy(occupied.clone());
        if in_line {
            (self.last_busy, self.failing_since) = (Some(Box::new((ahead, occupied.clone()))), Moment::NEVER);
        }
        self.leases.on_own_claim(in_line, ahead.is_some(), cx);
        cx.act(Action::Report(Box::new(ClaimReport::Busy { ahead, occupied, again })));
    }

    pub(super) fn on_trouble(
        &mut self,
        id: WaiterId,
        cause: Unknown,
        cx: &mut Context<'_, W, L>,
    ) -> Result<(), RefusalReason> {
        let in_line = self.queue.is_in_line(id);
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) else {
            return Ok(());
        };
        let known = self.last_busy.as_ref().filter(|_| in_line).map(|known| &known.1);
        let outcome = claiming.on_trouble(request, cause, known, cx.now);
        let quarantined = claiming.in_quarantine();
        if in_line {
            let since = claiming.failing_since.filter(|_| !quarantined);
            let known = Some(self.failing_since).filter(|known| *known != Moment::NEVER);
            self.failing_since = since.map_or(Moment::NEVER, |since| known.unwrap_or(since));
        }
        cx.act(Action::Report(Box::new(ClaimReport::Trouble(outcome?))));
        Ok(())
    }

    /// Releases everything that the attempt may have, waits for the reply, and returns this result to the task.
    pub(super) fn leave_then(&mut self, id: WaiterId, reason: RefusalReason, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        claiming.transferable = false;
        match claiming.holder().filter(|_| claiming.left_behind) {
            Some(holder) => {
                claiming.phase = Phase::Leaving(Box::new(reason));
                Step::Leave(holder)
            }
            None => self.refuse(id, reason, cx),
        }
    }

    pub(super) fn refuse(&mut self, id: WaiterId, reason: RefusalReason, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        let refusal = Box::new(claiming.refusal(reason, cx.now));
        if self.queue.is_in_line(id) {
            self.last_busy.take_if(|_| !matches!(refusal.reason, RefusalReason::Busy(_)));
            self.fail_others(id, &refusal, cx);
        }
        let pending = self.remove(id, cx);
        self.settle(pending, cx);
        Step::Refused(refusal)
    }

    /// The leader gives up because the backend does not answer. So do all tasks whose own limit has passed.
    pub(super) fn fail_others(&mut self, leader: WaiterId, refusal: &Refusal, cx: &mut Context<'_, W, L>) {
        let permanent = match &refusal.reason {
            RefusalReason::Busy(_) => return,
            RefusalReason::Unconfirmed(cause) if cause.not_replicated().is_some() => return,
            RefusalReason::Unreachable(cause) | RefusalReason::Unconfirmed(cause) => cause.is_permanent(),
            RefusalReason::Invalid(_) => true,
        };
        let since = self.failing_since.min(cx.now);
        let gives_up =
            |waiter: &Waiter<W>| permanent || cx.now.since(since.max(waiter.arrived)) >= waiter.request.ttl.get();
        let others = self
            .queue
            .line()
            .filter(|(id, waiter)| *id != leader && matches!(waiter.state, State::Queued) && gives_up(waiter));
        let others: Vec<_> = others.map(|(id, _)| id).collect();
        for id in others {
            if let Some((task, _)) = self.queue.serve(id, Step::Refused(Box::new(refusal.clone()))) {
                cx.act(Action::Wake(task));
            }
        }
    }

    /// Removes a task. Returns the attempt that the next task may take over; everything else is released.
    pub(super) fn remove(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Box<PendingClaim>> {
        let successor = self.has_successor(id, cx.config);
        let removed = self.queue.remove(id)?.state;
        self.last_busy.take_if(|_| self.queue.line_is_empty());
        match removed {
            State::Queued => None,
            State::Called(pending) => pending,
            State::Claiming(mut claiming) => {
                if successor && let Some(pending) = claiming.transfer(cx.now) {
                    return Some(Box::new(pending));
                }
                end_attempt(&mut claiming, cx);
                None
            }
        }
    }

    pub(super) fn end_attempt(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) {
        if let Some(claiming) = self.claiming(id) {
            end_attempt(claiming, cx);
        }
    }

    /// Whether another task could take over the queue position of this task at the server.
    pub(super) fn has_successor(&self, id: WaiterId, config: &Config) -> bool {
        let Some((front, first)) = self.queue.front().filter(|_| config.capabilities.queues) else { return false };
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get(id) else { return false };
        if !claiming.transferable || !claiming.left_behind || !self.queue.is_in_line(id) {
            return false;
        }
        if first.request.has_permits() {
            return self.queue.last_queued().is_some();
        }
        let fits =
            |next: &Waiter<W>| matches!(next.state, State::Queued) && next.request.matches(request.ttl, &request.owner);
        front == id && self.queue.second().is_some_and(fits)
    }
}

/// Ends the attempt, if there is one, and releases everything that it may have.
pub(super) fn end_attempt<W, L>(claiming: &mut Claiming, cx: &mut Context<'_, W, L>) {
    if let Some(pending) = &claiming.attempt {
        cx.act(Action::ClaimEnded(pending.claim.mode));
    }
    if let Some(release) = claiming.end_attempt(cx.now) {
        cx.act(Action::Release(Box::new(release)));
    }
}

fn unknown_occupant() -> Occupied {
    Occupied::new(Occupant::Foreign(Foreign::other("no answer yet")), Expiry::Never)
}
