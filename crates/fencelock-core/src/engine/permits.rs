//! Tasks of one client that request the same permits pass leases from task to task.
//!
//! A client may have many of these leases at the same time, up to the limit of the semaphore, and claims more while
//! others are passed on. So several queued tasks claim on the backend. To keep the order of arrival, a claim is not bound
//! to its task: the first queued task gets each lease, whether another task returned it or a claim was granted. If a
//! task gets a lease while its own claim waits, the last queued task without a claim takes the claim over. If all
//! queued tasks claim, the claim is kept for a moment, for the next task that arrives.
//!
//! All queued tasks request the same permits, with the same TTL and owner. Other tasks claim for themselves.

use super::action::{Action, Grant, Source, Step};
use super::claiming::{Claiming, HandOff, PendingClaim, Spare};
use super::claims::end_attempt;
use super::context::Context;
use super::key_engine::KeyEngine;
use super::release_queue::PendingRelease;
use super::request::AcquireRequest;
use super::tenure::{HoldId, Tenure};
use super::waiter::{State, WaiterId};
use crate::{HolderId, Lease, Mode, Moment, TokenBlock};
use std::time::Duration;

/// How long a claim is kept for the next task. Tasks that acquire in a loop return sooner.
const SPARE: Duration = Duration::from_millis(5);

impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether the queued tasks share leases with a task that has this request.
    pub(super) fn has_line_for(&self, request: &AcquireRequest) -> bool {
        let alike = |mode: Mode, matches: bool| {
            let permits = request.has_permits() || matches!(mode, Mode::Permits { .. });
            !permits || mode == request.mode && matches
        };
        if let Some((_, first)) = self.queue.front() {
            return alike(first.request.mode, request.matches(first.request.ttl, &first.request.owner));
        }
        let hold = self.leases.any_shared();
        hold.is_none_or(|hold| alike(hold.tenure.mode, request.matches(hold.ttl(), &hold.owner)))
    }

    /// Passes this lease after `from` to the first queued task without a request in flight.
    pub(super) fn hand_over_permits(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let Some((next, waiter)) = self.queue.first_at_rest() else { return false };
        let Some(grant) = self.leases.hand_over(id, from, &waiter.request, cx) else { return false };
        self.grow_block(id);
        self.serve_permits(next, grant, cx);
        true
    }

    /// A claim of a queued task was granted. The lease goes to the first queued task.
    pub(super) fn grant_permits(
        &mut self,
        id: WaiterId,
        tokens: TokenBlock,
        lease: Lease,
        source: Source,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Step> {
        let PendingClaim { claim, stray_until, .. } = self.claiming(id)?.attempt.take()?;
        cx.act(Action::ClaimEnded(claim.mode));
        self.queue.requeue(id);
        let (next, waiter) = self.queue.first_at_rest()?;
        let request = waiter.request.clone();
        let (hold, tenure) = self.leases.begin(claim.holder.id, &request, tokens, lease, stray_until, cx);
        (self.last_busy, self.failing_since) = (None, Moment::NEVER);
        if let Some(limits) = &cx.config.sharing {
            self.leases.share(hold, tokens, limits, cx);
        }
        let grant = Grant { hold, tenure, source };
        if next == id {
            self.queue.remove(id);
            self.settle(None, cx);
            return Some(Step::Granted(grant));
        }
        self.serve_permits(next, grant, cx);
        Some(Step::Wait)
    }

    /// Gives a lease to a queued task. If the task has sent a claim, another task takes it over.
    fn serve_permits(&mut self, id: WaiterId, grant: Grant, cx: &mut Context<'_, W, L>) {
        let Some((task, state)) = self.queue.serve(id, Step::Granted(grant)) else { return };
        cx.act(Action::Wake(task));
        let mut pending = match state {
            State::Queued => None,
            State::Called(pending) => pending,
            State::Claiming(claiming) => let_go(*claiming, cx),
        };
        self.call_for_permits(&mut pending, cx);
        let spare = pending.take_if(|claim| claim.answered.is_some() && !claim.notified && cx.now < claim.polled_at);
        if let Some(claim) = spare {
            let until = claim.polled_at.min(cx.now + SPARE);
            self.spares.push(Spare { claim, until });
        }
        self.settle(pending, cx);
    }

    /// Messages may have been lost: a task that takes over one of these claims polls at once.
    pub(super) fn poll_spares(&mut self) {
        for spare in self.spares.iter_mut() {
            spare.claim.polled_at = Moment::default();
        }
    }

    /// Releases the claims that no task has taken over in time, or all if the client holds no permits.
    pub(super) fn release_spares(&mut self, cx: &mut Context<'_, W, L>) {
        let (now, none_left) = (cx.now, self.leases.permits.is_empty());
        for Spare { claim, .. } in self.spares.extract(|spare| none_left || spare.until <= now) {
            cx.act(Action::ClaimEnded(claim.claim.mode));
            cx.act(Action::Release(Box::new(claim.release(cx.now))));
        }
        // If nothing else happens, the timer of a lease triggers their release.
        if let Some(until) = self.spares.iter().map(|spare| spare.until).min() {
            self.leases.wake_at(until, cx);
        }
    }

    /// The backend has granted a claim without a task. Returns whether there was one of this holder.
    pub(super) fn spare_granted(&mut self, holder: HolderId, hand_off: HandOff, cx: &mut Context<'_, W, L>) -> bool {
        let index = self.spares.iter().position(|spare| spare.claim.claim.holder.id == holder);
        let Some(Spare { mut claim, .. }) = index.and_then(|index| self.spares.remove(index)) else { return false };
        (claim.hand_off, claim.notified) = (Some(hand_off), true);
        if let Some(id) = self.queue.last_queued().filter(|_| self.has_line_of(claim.claim.mode)) {
            self.call(id, Some(claim), cx);
        } else {
            cx.act(Action::ClaimEnded(claim.claim.mode));
            cx.act(Action::Release(Box::new(PendingRelease { is_hold: true, ..claim.release(cx.now) })));
        }
        true
    }

    fn has_line_of(&self, mode: Mode) -> bool {
        self.queue.front().is_some_and(|(_, first)| first.request.mode == mode)
    }

    /// While more permits may be available, queued tasks send claims, starting from the back of the queue, because
    /// those tasks have the longest wait ahead.
    pub(super) fn call_for_permits(&mut self, pending: &mut Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        let Some((_, first)) = self.queue.front() else { return };
        let Mode::Permits { weight, limit } = first.request.mode else { return };
        let most = (limit / weight.max(1)) as usize;
        let wanted = self.queue.line_len().min(most.saturating_sub(self.leases.permits_to_pass(cx)));
        while self.queue.claiming_in_line() < wanted
            && let Some(id) = self.queue.last_queued()
        {
            let claim = pending.take().or_else(|| self.spares.pop().map(|spare| spare.claim));
            self.call(id, claim, cx);
        }
    }

    /// The backend reports the number of waiters. The claims of this client are subtracted.
    pub(super) fn on_permit_waiters(&mut self, waiters: u32, cx: &mut Context<'_, W, L>) {
        let spares = u32::try_from(self.spares.len()).unwrap_or(u32::MAX);
        let claims = self.queue.waiting_at_backend().saturating_add(spares);
        self.leases.on_permit_waiters(waiters.saturating_sub(claims), claims, cx);
        self.settle(None, cx);
    }
}

/// Takes the claim of a task that has got a lease, for another task. A claim that cannot be transferred is released.
fn let_go<W, L>(mut claiming: Claiming, cx: &mut Context<'_, W, L>) -> Option<Box<PendingClaim>> {
    let polled_at = claiming.polls_at;
    let pending = if cx.config.capabilities.queues { claiming.transfer(cx.now) } else { None };
    end_attempt(&mut claiming, cx);
    pending.map(|pending| Box::new(PendingClaim { polled_at, ..pending }))
}
