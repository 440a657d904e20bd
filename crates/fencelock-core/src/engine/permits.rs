//! Tasks of one client that ask for the same permits pass their leases on, each lease from task to task.
//!
//! A client may have many of these leases at the same time, and claims for more of them: as many as the semaphore can have. So
//! several tasks in line claim at the place while other leases are passed on. To keep the order of arrival, a claim does not belong
//! to its task: a lease goes to the first task in line, whether another task returned it or a claim was granted. A task that gets a
//! lease while its claim waits leaves the claim to the last task in line, which carries it for as long as it waits itself.
//!
//! All tasks in line ask for the same permits, with the same TTL and owner. Others claim for themselves.

use super::action::{Action, Grant, Source, Step};
use super::claiming::{Claiming, PendingClaim};
use super::claims::end_attempt;
use super::context::Context;
use super::key_engine::KeyEngine;
use super::leases::Leases;
use super::queue::Queue;
use super::request::AcquireRequest;
use super::shared_lease::SharedLease;
use super::tenure::{HoldId, Tenure};
use super::waiter::{State, Waiter, WaiterId};
use crate::{Lease, Mode, TokenBlock};
use std::time::Duration;

impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether the tasks in line share leases with a task that has this request.
    pub(super) fn has_line_for(&self, request: &AcquireRequest) -> bool {
        let alike = |mode: Mode, matches: bool| {
            let permits = request.has_permits() || matches!(mode, Mode::Permits { .. });
            !permits || mode == request.mode && matches
        };
        if let Some((_, first)) = self.queue.front() {
            return alike(first.request.mode, request.matches(first.request.ttl, &first.request.owner));
        }
        let hold = self.leases.any_shared();
        hold.is_none_or(|hold| alike(hold.tenure.mode, request.matches(hold.ttl, &hold.owner)))
    }

    /// The first task in line gets this lease after `from`, unless it waits for an answer: then the next one does.
    pub(super) fn hand_over_permits(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let Some((next, waiter)) = self.queue.first_at_rest() else { return false };
        let Some(grant) = self.leases.hand_over(id, from, &waiter.request, cx) else { return false };
        self.grow_block(id);
        self.serve_permits(next, grant, cx);
        true
    }

    /// A claim of a task in line was granted. The lease is for the first task in line.
    pub(super) fn grant_permits(
        &mut self,
        id: WaiterId,
        tokens: TokenBlock,
        lease: Lease,
        source: Source,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Step> {
        let PendingClaim { claim, stray_until, .. } = self.claiming(id)?.attempt.take()?;
        cx.act(Action::ClaimEnded);
        self.queue.requeue(id);
        let (next, waiter) = self.queue.first_at_rest()?;
        let request = waiter.request.clone();
        let (hold, tenure) = self.leases.begin(claim.holder.id, &request, tokens, lease, stray_until, cx);
        (self.heard, self.failing_since) = (None, None);
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

    /// A task in line has a lease. The claim that it made meanwhile goes to another task.
    fn serve_permits(&mut self, id: WaiterId, grant: Grant, cx: &mut Context<'_, W, L>) {
        let Some((task, state)) = self.queue.serve(id, Step::Granted(grant)) else { return };
        cx.act(Action::Wake(task));
        let pending = match state {
            State::Queued => None,
            State::Called(pending) => pending,
            State::Claiming(claiming) => let_go(*claiming, cx),
        };
        self.settle(pending, cx);
    }

    /// Makes tasks in line claim, as long as another permit may be had for one of them. The last ones do: they wait for longest.
    pub(super) fn call_for_permits(&mut self, pending: &mut Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        let Some((_, first)) = self.queue.front() else { return };
        let Mode::Permits { weight, limit } = first.request.mode else { return };
        let most = (limit / weight.max(1)) as usize;
        let wanted = self.queue.line_len().min(most.saturating_sub(self.leases.permits_to_pass(cx)));
        while self.queue.claiming_in_line() < wanted
            && let Some(id) = self.queue.last_queued()
        {
            self.call(id, pending.take(), cx);
        }
    }

    /// The place says how many wait. The claims of this client are not among the others.
    pub(super) fn on_permit_waiters(&mut self, waiters: u32, cx: &mut Context<'_, W, L>) {
        let claims = self.queue.waiting_at_place();
        self.leases.on_permit_waiters(waiters.saturating_sub(claims), claims, cx);
        self.settle(None, cx);
    }
}

/// The claim of a task that has a lease, for another task. What cannot be taken over is released.
fn let_go<W, L>(mut claiming: Claiming, cx: &mut Context<'_, W, L>) -> Option<Box<PendingClaim>> {
    let polled_at = claiming.asks_at;
    let pending = if cx.config.capabilities.queues { claiming.transfer(cx.now) } else { None };
    end_attempt(&mut claiming, cx);
    pending.map(|pending| Box::new(PendingClaim { polled_at, ..pending }))
}

impl<W: Default> Queue<W> {
    /// The first task in line that waits for no answer.
    fn first_at_rest(&self) -> Option<(WaiterId, &Waiter<W>)> {
        self.line().find(|(_, waiter)| match &waiter.state {
            State::Queued | State::Called(_) => true,
            State::Claiming(claiming) => claiming.is_at_rest(),
        })
    }

    /// How many claims of tasks in line are known to wait at the place.
    fn waiting_at_place(&self) -> u32 {
        let waits = |waiter: &Waiter<W>| waiter.attempt().is_some_and(|attempt| attempt.answered.is_some());
        let mut left = self.claiming_in_line();
        let claims = self.line().take_while(|(_, waiter)| {
            let more = left > 0;
            left -= usize::from(!matches!(waiter.state, State::Queued) && more);
            more
        });
        u32::try_from(claims.filter(|(_, waiter)| waits(waiter)).count()).unwrap_or(u32::MAX)
    }

    /// Whether a task that tries once in this mode would overtake a task in line. Where there are permits for several, the first
    /// claims of tasks that have just come are no sign of that.
    pub(super) fn is_known_to_wait(&self, mode: Mode) -> bool {
        let waits = |waiter: &Waiter<W>| match &waiter.state {
            State::Queued => true,
            State::Called(_) | State::Claiming(_) => waiter.attempt().is_some_and(|attempt| attempt.answered.is_some()),
        };
        let permits = matches!(mode, Mode::Permits { .. });
        !self.line_is_empty() && (!permits || self.line().any(|(_, waiter)| waits(waiter)))
    }
}

impl<W> Waiter<W> {
    fn attempt(&self) -> Option<&PendingClaim> {
        match &self.state {
            State::Queued => None,
            State::Called(pending) => pending.as_deref(),
            State::Claiming(claiming) => claiming.attempt.as_ref(),
        }
    }
}

impl<L: Default> Leases<L> {
    pub(super) fn shares_permits(&self, id: HoldId) -> bool {
        self.permits.iter().any(|shared| shared.hold == id)
    }

    /// One lease more. What the others know of waiters, it knows too.
    pub(super) fn share_permits<W>(&mut self, shared: Option<SharedLease>, cx: &Context<'_, W, L>) {
        let (Some(mut shared), Some(limits)) = (shared, &cx.config.sharing) else { return };
        if let Some(other) = self.permits.last() {
            shared.ask_with(other);
            if other.others_wait(cx.config) {
                shared.on_waiters(1, cx.config, limits, cx.now);
            }
        }
        self.permits.push(shared);
    }

    /// This lease asks whether others wait, so the other ones need not.
    pub(super) fn ask_together(&mut self, id: HoldId) {
        let Some(asked) = self.permits.iter().find(|shared| shared.hold == id).cloned() else { return };
        for shared in &mut self.permits {
            shared.ask_with(&asked);
        }
    }

    fn on_permit_waiters<W>(&mut self, others: u32, claims: u32, cx: &mut Context<'_, W, L>) {
        let Some(limits) = &cx.config.sharing else { return };
        for shared in &mut self.permits {
            shared.on_waiters(others, cx.config, limits, cx.now);
            if claims > 0 {
                // The next message may be about a claim of this client.
                shared.unannounced();
            }
        }
    }

    /// The backend announces that another client waits, or another task of this one.
    pub(super) fn on_permits_queued<W>(&mut self, cx: &mut Context<'_, W, L>) {
        for shared in &mut self.permits {
            shared.unannounced();
            let hold = self.holds.iter_mut().find(|hold| hold.id == shared.hold);
            if let Some(hold) = hold.filter(|hold| hold.is_renewing()) {
                // The answer to that renewal may be older than the waiter.
                hold.expedite(cx.now, Duration::ZERO);
            }
        }
    }

    /// How many leases the next tasks may get, or are to be left free after the present ones.
    fn permits_to_pass<W>(&self, cx: &Context<'_, W, L>) -> usize {
        let Some(limits) = &cx.config.sharing else { return 0 };
        let goes_on = |shared: &&SharedLease| shared.has_more() || shared.yields(cx.config, limits, cx.now);
        self.permits.iter().filter(goes_on).count()
    }
}
