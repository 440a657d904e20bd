//! The claims of its tasks, and what the backend answers.

use super::KeyEngine;
use super::waiters::{Waiter, WaiterId, WaiterState};
use crate::engine::claim::{AcquireRequest, Claiming, HASTY_ATTEMPTS, HandOff, PendingClaim, Phase, Spare};
use crate::engine::hold::{HoldId, Tenure};
use crate::engine::{
    AcquireFailure, Action, ClaimReport, Config, Env, FailureReason, Grant, KeyRequest, PendingRelease, Source,
    TaskStep,
};
use crate::{
    Acquire, ClaimReply, Fault, HolderId, Holding, Lease, Mode, Moment, Occupied, Release, Sent, TokenBlock, Unknown,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// How long a claim is kept for the next task. Tasks that acquire in a loop return sooner.
const SPARE: Duration = Duration::from_millis(5);
/// A request of a wait without a limit has this time, although the TTL is shorter: a healthy server needs less, also to connect.
const SHORTEST_REQUEST: Duration = Duration::from_secs(1);

/// Claims of one task. Without a step, the task waits for a lease of this client.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The reply to a claim that the backend was given at `called`; connecting does not count as part of the lease. `before`: what the
    /// holder may have left behind before that claim.
    pub(super) fn claim_answered(
        &mut self,
        id: WaiterId,
        (called, before): (Moment, bool),
        reply: ClaimReply,
        cx: &mut Env<'_, W, L>,
    ) -> Option<TaskStep> {
        let was_sent = reply.sent != Sent::Never;
        let sent = reply.sent_at(called, cx.now);
        let claiming = self.claiming(id)?;
        let cause = match reply.answer {
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
            Ok(Acquire::Queued { ahead, occupied, hand_off }) => {
                if claiming.attempt.as_mut().is_some_and(|attempt| attempt.queued(sent, hand_off)) {
                    cx.act(Action::Queued);
                }
                self.on_busy(id, Some(ahead), occupied, cx);
                return self.claim_later(id, cx);
            }
            Ok(Acquire::Conflict(present)) => {
                claiming.left_behind = false;
                return self.leave_then(id, FailureReason::Conflict(present), cx);
            }
            Err(cause) => cause,
        };
        claiming.unanswered(&cause, was_sent, before, cx.now);
        if cause.not_replicated().is_some() || cause.is_permanent() {
            return self.leave_then(id, FailureReason::Unconfirmed(cause), cx);
        }
        match self.on_trouble(id, cause, cx) {
            Ok(()) => self.claim_later(id, cx),
            Err(reason) => self.fail(id, reason, cx),
        }
    }

    /// The reply to an inspection, which was sent instead of a claim.
    pub(super) fn inspected(
        &mut self,
        id: WaiterId,
        answer: Result<Option<Holding>, Unknown>,
        cx: &mut Env<'_, W, L>,
    ) -> Option<TaskStep> {
        match answer {
            Ok(seen) => {
                let occupied = seen.map_or_else(|| self.first_in_queue(), Occupied::from);
                self.on_busy(id, None, occupied, cx);
            }
            Err(cause) => {
                if let Err(reason) = self.on_trouble(id, cause, cx) {
                    return self.fail(id, reason, cx);
                }
            }
        }
        self.claim_later(id, cx)
    }

    /// The reply to the release of everything that the attempt may have.
    pub(super) fn left(
        &mut self,
        id: WaiterId,
        reason: FailureReason,
        answer: Result<Release, Unknown>,
        cx: &mut Env<'_, W, L>,
    ) -> Option<TaskStep> {
        // A server that does not allow it now will not do so later.
        self.claiming(id)?.left_behind = answer.is_err_and(|cause| !cause.is_permanent());
        self.end_attempt(id, cx);
        self.fail(id, reason, cx)
    }

    pub(super) fn claiming(&mut self, id: WaiterId) -> Option<&mut Claiming> {
        self.waiters.claiming(id).map(|(_, claiming)| claiming)
    }

    pub(super) fn begin_claiming(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        let in_queue = self.waiters.is_in_queue(id);
        let (silent_since, yield_until) = (self.silent_since, self.leases.yield_until);
        let waiter = self.waiters.get_mut(id)?;
        let is_silent = in_queue && silent_since != Moment::NEVER;
        let last_answer = if is_silent { silent_since.max(waiter.arrived) } else { cx.now };
        let mut claiming = Claiming::new(&waiter.request, waiter.arrived, last_answer);
        if let WaiterState::Called(Some(pending)) = std::mem::replace(&mut waiter.state, WaiterState::Queued) {
            claiming.resume(*pending, cx.now);
        }
        let until = match claiming.phase {
            Phase::Sleeping(until) => until,
            _ if in_queue && !claiming.is_notified() => yield_until.min(claiming.deadline),
            _ => cx.now,
        };
        waiter.state = WaiterState::Claiming(Box::new(claiming));
        if cx.now < until { Some(TaskStep::Rest(until)) } else { self.attempt(id, cx) }
    }

    pub(super) fn attempt(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        if self.claiming(id)?.attempt.is_none() {
            let holder = match cx.rng.holder_id() {
                Ok(holder) => holder,
                Err(invalid) => return self.fail(id, FailureReason::Invalid(invalid), cx),
            };
            let (request, claiming) = self.waiters.claiming(id)?;
            (claiming.attempt, claiming.left_behind) = (Some(PendingClaim::new(cx.key, request, holder)), false);
            cx.act(Action::ClaimBegan(request.mode));
        }
        self.claim_now(id, cx)
    }

    fn next_attempt(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        if self.claiming(id)?.out_of_queue > HASTY_ATTEMPTS {
            return Some(TaskStep::Rest(cx.now + Duration::from_millis(10)));
        }
        self.attempt(id, cx)
    }

    /// Claims, unless the key was handed to the attempt meanwhile: a trusted message starts the hold at once, and the first renewal makes
    /// it a full lease.
    fn claim_now(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        if let Some((tokens, lease)) = self.claiming(id)?.attempt.as_mut()?.accept_hand_off(cx.config, cx.now)
            && !is_too_late(lease, cx)
        {
            return self.grant(id, tokens, lease, Source::HandedOff, cx);
        }
        let block = self.waiters.is_in_queue(id).then(|| NonZeroU32::new(self.block)).flatten();
        let Waiter { request, arrived, .. } = self.waiters.get(id)?;
        // A task outside the queue does not overtake queued tasks, even if only this client knows them.
        let last = !request.queues() && cx.config.sharing.is_some();
        let inspects = last && self.waiters.is_known_to_wait(request.mode);
        let limit = request.limit(*arrived, cx.now);
        let (request, claiming) = self.waiters.claiming(id)?;
        let gives_up = request.gives_up_at(claiming.last_answer).map(|end| end.max(cx.now + SHORTEST_REQUEST));
        let limit = if inspects { Moment::NEVER } else { gives_up.unwrap_or(limit) };
        Some(TaskStep::Send(claiming.next_request(block, inspects, cx.now)?, limit))
    }

    /// Sleeps before the next claim, unless the wait is over.
    fn claim_later(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        let (request, claiming) = self.waiters.claiming(id)?;
        if claiming.is_over(request, cx.now) {
            let busy = FailureReason::Busy(claiming.occupied.clone());
            if self.has_successor(id, cx.config) {
                return self.fail(id, busy, cx);
            }
            return self.leave_then(id, busy, cx);
        }
        let until = cx.now + claiming.pause(request, cx.config, cx.now, cx.rng);
        claiming.phase = Phase::Sleeping(until);
        Some(TaskStep::Rest(until))
    }

    pub(super) fn wake_up(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        self.claiming(id)?.phase = Phase::Delayed;
        if cx.config.capabilities.fresh_holders {
            // A rollback of this claim may still be in flight; it must not release the next claim of the same holder.
            self.end_attempt(id, cx);
            return self.next_attempt(id, cx);
        }
        self.claim_now(id, cx)
    }

    fn granted(&mut self, id: WaiterId, sent: Moment, tokens: TokenBlock, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        let attempt = self.claiming(id)?.attempt.as_mut()?;
        let tokens = attempt.complete_block(tokens);
        let lease = cx.config.lease(sent, attempt.claim.ttl);
        if !is_too_late(lease, cx) {
            return self.grant(id, tokens, lease, Source::Claimed, cx);
        }
        let why = "the lock was granted, but the lease had expired when the reply arrived";
        let cause = Unknown::new(cx.config.backend.clone(), Fault::Timeout, why);
        let trouble = self.on_trouble(id, cause, cx);
        self.end_attempt(id, cx);
        match trouble {
            Ok(()) => self.next_attempt(id, cx),
            Err(reason) => self.fail(id, reason, cx),
        }
    }

    /// Begins the hold of a lease that has not expired. That of queued permits goes to the first task at rest.
    fn grant(
        &mut self,
        id: WaiterId,
        tokens: TokenBlock,
        lease: Lease,
        source: Source,
        cx: &mut Env<'_, W, L>,
    ) -> Option<TaskStep> {
        let in_queue = self.waiters.is_in_queue(id);
        let PendingClaim { claim, stray_until, .. } = self.claiming(id)?.attempt.take()?;
        cx.act(Action::ClaimEnded(claim.mode));
        let mut next = id;
        if in_queue && self.waiters.get(id)?.request.has_permits() {
            self.waiters.requeue(id);
            next = self.waiters.first_at_rest()?.0;
        }
        let request = self.waiters.get(next)?.request.clone();
        let (hold, tenure) = self.leases.begin(claim.holder.id, &request, tokens, lease, stray_until, cx);
        if in_queue {
            (self.last_busy, self.silent_since) = (None, Moment::NEVER);
            self.leases.share(hold, tokens, cx);
        }
        let grant = Grant { hold, tenure, source };
        if next != id {
            self.serve_permits(next, grant, cx);
            return None;
        }
        self.waiters.remove(id);
        if in_queue {
            self.admit(cx);
        }
        self.call_next(None, cx);
        Some(TaskStep::Granted(grant))
    }

    fn on_busy(&mut self, id: WaiterId, ahead: Option<u32>, occupied: Occupied, cx: &mut Env<'_, W, L>) {
        let in_queue = self.waiters.is_in_queue(id);
        let Some(claiming) = self.claiming(id) else { return };
        let again = claiming.on_busy(occupied.clone(), cx.now);
        if in_queue {
            (self.last_busy, self.silent_since) = (Some(Box::new((ahead, occupied.clone()))), Moment::NEVER);
        }
        self.leases.on_own_claim(in_queue, ahead.is_some(), cx);
        cx.act(Action::Report(Box::new(ClaimReport::Busy { ahead, occupied, again })));
    }

    fn on_trouble(&mut self, id: WaiterId, cause: Unknown, cx: &mut Env<'_, W, L>) -> Result<(), FailureReason> {
        let in_queue = self.waiters.is_in_queue(id);
        let Some((request, claiming)) = self.waiters.claiming(id) else { return Ok(()) };
        let known = self.last_busy.as_ref().filter(|_| in_queue).map(|known| &known.1);
        let failure = claiming.failure(FailureReason::Unreachable(cause.clone()), cx.now);
        let outcome = claiming.on_trouble(request, cause, known, cx.now);
        if in_queue {
            let earlier = self.silent_since.min(claiming.last_answer);
            self.silent_since = if claiming.quarantine.is_some() { Moment::NEVER } else { earlier };
            let (since, now) = (self.silent_since.min(cx.now), cx.now);
            if now.since(since) >= request.ttl.get() {
                self.last_busy = None;
            }
            let end = |waiter: &Waiter<W>| waiter.request.gives_up_at(since.max(waiter.arrived));
            self.fail_others(id, &failure, |waiter| end(waiter).is_some_and(|end| now >= end), cx);
        }
        cx.act(Action::Report(Box::new(ClaimReport::Trouble(outcome?))));
        Ok(())
    }

    /// Releases everything that the attempt may have, waits for the reply, and returns this result to the task.
    fn leave_then(&mut self, id: WaiterId, reason: FailureReason, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        let Waiter { request, arrived, .. } = self.waiters.get(id)?;
        let limit = request.limit(*arrived, cx.now);
        let claiming = self.claiming(id)?;
        let Some(attempt) = claiming.attempt.as_ref().filter(|_| claiming.left_behind) else {
            return self.fail(id, reason, cx);
        };
        let holder = attempt.claim.holder.id;
        claiming.phase = Phase::Leaving(Box::new(reason));
        Some(TaskStep::Send(KeyRequest::Release(holder), limit))
    }

    fn fail(&mut self, id: WaiterId, reason: FailureReason, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        let failure = Box::new(self.claiming(id)?.failure(reason, cx.now));
        if self.waiters.is_in_queue(id) {
            self.last_busy.take_if(|_| !matches!(failure.reason, FailureReason::Busy(_)));
            let is_permanent = match &failure.reason {
                FailureReason::Unreachable(cause) | FailureReason::Unconfirmed(cause) => cause.is_permanent(),
                FailureReason::Conflict(_) | FailureReason::Invalid(_) => true,
                FailureReason::Busy(_) => false,
            };
            if is_permanent {
                self.fail_others(id, &failure, |_| true, cx);
            }
        }
        self.take_out(id, cx);
        Some(TaskStep::Failed(failure))
    }

    /// This failure of a task that claims is also that of these queued tasks.
    fn fail_others(
        &mut self,
        claiming: WaiterId,
        failure: &AcquireFailure,
        gives_up: impl Fn(&Waiter<W>) -> bool,
        cx: &mut Env<'_, W, L>,
    ) {
        let others =
            self.waiters.queue.iter().filter(|(id, waiter)| *id != claiming && waiter.is_queued() && gives_up(waiter));
        let others: Vec<_> = others.map(|(id, waiter)| (id, cx.now.since(waiter.arrived))).collect();
        for (id, waited) in others {
            let failure = AcquireFailure { waited, ..failure.clone() };
            self.waiters.serve(id, Err(Box::new(failure)), cx);
        }
    }

    /// Removes a task. The next one may take over its attempt; everything else that it has is passed on or released.
    pub(super) fn take_out(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<Waiter<W>> {
        let successor = self.has_successor(id, cx.config);
        let mut waiter = self.waiters.remove(id)?;
        self.last_busy.take_if(|_| self.waiters.queue.is_empty());
        let (mut pending, mut granted) = (None, None);
        match std::mem::replace(&mut waiter.state, WaiterState::TurnLost) {
            WaiterState::Called(claim) => pending = claim,
            WaiterState::Claiming(mut claiming) => {
                pending = if successor { claiming.transfer(cx.now).map(Box::new) } else { None };
                end_attempt(&mut claiming, cx);
            }
            WaiterState::Served(result) => granted = result.ok(),
            WaiterState::Queued | WaiterState::LastLook | WaiterState::TurnLost => {}
        }
        self.call_next(pending, cx);
        if let Some(Grant { hold, tenure, .. }) = granted {
            self.release(hold, tenure, true, cx);
        }
        Some(waiter)
    }

    fn end_attempt(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) {
        if let Some(claiming) = self.claiming(id) {
            end_attempt(claiming, cx);
        }
    }

    /// Whether another task could take over the queue position of this task at the server.
    fn has_successor(&self, id: WaiterId, config: &Config) -> bool {
        let Some((front, first)) = self.waiters.front().filter(|_| config.capabilities.queues) else { return false };
        let Some(Waiter { request, state: WaiterState::Claiming(claiming), .. }) = self.waiters.get(id) else {
            return false;
        };
        if !claiming.is_transferable() || !self.waiters.is_in_queue(id) {
            return false;
        }
        if first.request.has_permits() {
            return self.waiters.last_queued().is_some();
        }
        let fits = |next: &Waiter<W>| next.is_queued() && next.request.matches(request.ttl, &request.owner);
        front == id && self.waiters.queue.iter().nth(1).is_some_and(|(_, next)| fits(next))
    }
}

/// Whether a lease has expired before its hold begins.
fn is_too_late<W, L>(lease: Lease, cx: &mut Env<'_, W, L>) -> bool {
    let is_late = lease.lapsed(cx.now);
    if is_late {
        cx.act(Action::GrantedTooLate);
    }
    is_late
}

/// Ends the attempt, if there is one, and releases everything that it may have.
pub(super) fn end_attempt<W, L>(claiming: &mut Claiming, cx: &mut Env<'_, W, L>) {
    if let Some(pending) = &claiming.attempt {
        cx.act(Action::ClaimEnded(pending.claim.mode));
    }
    if let Some(release) = claiming.end_attempt(cx.now) {
        cx.act(Action::Release(Box::new(release)));
    }
}

/// Tasks of one client that request the same permits pass leases from task to task.
///
/// A client may have many of these leases at the same time, up to the limit of the semaphore, and claims more while
/// others are passed on. So several queued tasks claim on the backend. To keep the order of arrival, a claim is not bound
/// to its task: the first queued task gets each lease, whether another task returned it or a claim was granted. If a
/// task gets a lease while its own claim waits, the last queued task without a claim takes the claim over. If all
/// queued tasks claim, the claim is kept for a moment, for the next task that arrives.
///
/// All queued tasks request the same permits, with the same TTL and owner. Other tasks claim for themselves.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether the queued tasks share leases with a task that has this request.
    pub(super) fn has_queue_for(&self, request: &AcquireRequest) -> bool {
        let alike = |mode: Mode, matches: bool| {
            let permits = request.has_permits() || matches!(mode, Mode::Permits { .. });
            !permits || mode == request.mode && matches
        };
        if let Some((_, first)) = self.waiters.front() {
            return alike(first.request.mode, request.matches(first.request.ttl, &first.request.owner));
        }
        let hold = self.leases.any_task_hold();
        hold.is_none_or(|hold| alike(hold.tenure.mode, request.matches(hold.plan.ttl(), &hold.owner)))
    }

    /// Passes this lease after `from` to the first queued task without a request in flight.
    pub(super) fn hand_over_permits(&mut self, id: HoldId, from: Tenure, cx: &mut Env<'_, W, L>) -> bool {
        let Some((next, waiter)) = self.waiters.first_at_rest() else { return false };
        let Some(grant) = self.leases.hand_over(id, from, &waiter.request, cx) else { return false };
        self.grow_block(id);
        self.serve_permits(next, grant, cx);
        true
    }

    /// Gives a lease to a queued task. If the task has sent a claim, another task takes it over.
    fn serve_permits(&mut self, id: WaiterId, grant: Grant, cx: &mut Env<'_, W, L>) {
        let mut pending = match self.waiters.serve(id, Ok(grant), cx) {
            Some(WaiterState::Called(pending)) => pending,
            Some(WaiterState::Claiming(claiming)) => detach_claim(*claiming, cx),
            _ => None,
        };
        self.call_for_permits(&mut pending, cx);
        let spare = pending.take_if(|claim| claim.answered.is_some() && !claim.notified && cx.now < claim.polled_at);
        if let Some(claim) = spare {
            let until = claim.polled_at.min(cx.now + SPARE);
            self.spares.push(Spare { claim, until });
        }
        self.call_next(pending, cx);
    }

    /// Releases the claims that no task has taken over in time, or all if the client holds no permits.
    pub(super) fn release_spares(&mut self, cx: &mut Env<'_, W, L>) {
        let (now, none_left) = (cx.now, !self.leases.has_shared_permits());
        for Spare { claim, .. } in self.spares.extract_if(.., |spare| none_left || spare.until <= now) {
            cx.act(Action::ClaimEnded(claim.claim.mode));
            cx.act(Action::Release(Box::new(claim.release(cx.now))));
        }
        // If nothing else happens, the timer of a lease triggers their release.
        if let Some(until) = self.spares.iter().map(|spare| spare.until).min() {
            self.leases.wake_at(until, cx);
        }
    }

    /// The backend has granted a claim without a task. Returns whether there was one of this holder.
    pub(super) fn spare_granted(&mut self, holder: HolderId, hand_off: HandOff, cx: &mut Env<'_, W, L>) -> bool {
        let Some(index) = self.spares.iter().position(|spare| spare.claim.claim.holder.id == holder) else {
            return false;
        };
        let Spare { mut claim, .. } = self.spares.remove(index);
        (claim.hand_off, claim.notified) = (Some(hand_off), true);
        let is_alike = self.waiters.front().is_some_and(|(_, first)| first.request.mode == claim.claim.mode);
        if let Some(id) = self.waiters.last_queued().filter(|_| is_alike) {
            self.waiters.call(id, Some(claim), cx);
        } else {
            cx.act(Action::ClaimEnded(claim.claim.mode));
            cx.act(Action::Release(Box::new(PendingRelease { is_hold: true, ..claim.release(cx.now) })));
        }
        true
    }

    /// While more permits may be available, queued tasks send claims, starting from the back of the queue, because
    /// those tasks have the longest wait ahead.
    pub(super) fn call_for_permits(&mut self, pending: &mut Option<Box<PendingClaim>>, cx: &mut Env<'_, W, L>) {
        let Some((_, first)) = self.waiters.front() else { return };
        let Mode::Permits { weight, limit } = first.request.mode else { return };
        let most = (limit / weight.max(1)) as usize;
        let wanted = self.waiters.queue.len().min(most.saturating_sub(self.leases.permits_to_pass(cx)));
        while self.waiters.claiming < wanted
            && let Some(id) = self.waiters.last_queued()
        {
            let claim = pending.take().or_else(|| self.spares.pop().map(|spare| spare.claim));
            self.waiters.call(id, claim, cx);
        }
    }
}

/// Takes the claim of a task that has got a lease, for another task. A claim that cannot be transferred is released.
fn detach_claim<W, L>(mut claiming: Claiming, cx: &mut Env<'_, W, L>) -> Option<Box<PendingClaim>> {
    let polled_at = if let Phase::Sleeping(until) = claiming.phase { until } else { Moment::default() };
    let pending = if cx.config.capabilities.queues { claiming.transfer(cx.now) } else { None };
    end_attempt(&mut claiming, cx);
    pending.map(|pending| Box::new(PendingClaim { polled_at, ..pending }))
}
