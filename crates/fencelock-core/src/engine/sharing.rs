//! Leases that the tasks of a client share: one after another, or, for readers and permits, at the same time.

use super::SharingLimits;
use super::action::{Action, Grant, Source};
use super::context::Context;
use super::hold::Hold;
use super::leases::Leases;
use super::request::AcquireRequest;
use super::shared_lease::SharedLease;
use super::tenure::{HoldId, Tenure};
use crate::{Expiry, Holder, Mode, Moment, Occupant, Occupied, TokenBlock};
use std::time::Duration;

impl<L: Default> Leases<L> {
    pub(super) fn is_shared(&self, id: HoldId) -> bool {
        self.sharing(id).is_some()
    }

    fn sharing(&self, id: HoldId) -> Option<&SharedLease> {
        self.shared.iter().chain(self.permits.iter()).find(|shared| shared.hold == id)
    }

    fn sharing_mut(&mut self, id: HoldId) -> Option<(&mut SharedLease, &mut Hold<L>)> {
        let shared = self.shared.iter_mut().chain(self.permits.iter_mut()).find(|shared| shared.hold == id)?;
        let hold = self.holds.iter_mut().find(|hold| hold.id == id)?;
        Some((shared, hold))
    }

    /// Stops sharing a lease.
    pub(super) fn take_shared(&mut self, id: HoldId) -> Option<SharedLease> {
        let one = self.shared.take_if(|shared| shared.hold == id);
        one.or_else(|| {
            let index = self.permits.iter().position(|shared| shared.hold == id)?;
            self.permits.remove(index)
        })
    }

    /// A lease that tasks share: the exclusive or shared one, or one of permits.
    pub(super) fn any_shared(&self) -> Option<&Hold<L>> {
        self.shared.iter().chain(self.permits.iter()).next().and_then(|shared| self.get(shared.hold))
    }

    pub(super) fn shared_hold_mut(&mut self) -> Option<(&mut SharedLease, &mut Hold<L>)> {
        let shared = self.shared.as_mut()?;
        let hold = self.holds.iter_mut().find(|hold| hold.id == shared.hold)?;
        Some((shared, hold))
    }

    /// The shared lease, if it is idle.
    pub(super) fn idle(&self) -> Option<(HoldId, Tenure)> {
        let shared = self.shared.as_ref().filter(|shared| shared.idle)?;
        self.get(shared.hold).map(|hold| (hold.id, hold.tenure))
    }

    /// Whether this shared lease has no token left for another tenure.
    pub(super) fn is_used_up(&self, id: HoldId) -> bool {
        self.sharing(id).is_some_and(SharedLease::is_used_up)
    }

    /// Shares this lease, unless it has already expired. Several leases of permits are shared at the same time.
    pub(super) fn share<W>(&mut self, id: HoldId, tokens: TokenBlock, limits: &SharingLimits, cx: &Context<'_, W, L>) {
        let history = std::mem::take(&mut self.history);
        let alive = self.get(id).is_some_and(|hold| hold.lapse(cx.now).is_none());
        let shared = alive.then(|| SharedLease::new(id, tokens, cx.now, history, cx.config, limits));
        if self.get(id).is_some_and(Hold::has_permits) {
            return self.share_permits(shared, cx);
        }
        self.shared = shared;
        if let Some(hold) = self.get_mut(id).filter(|hold| alive && hold.tenure.mode == Mode::Shared) {
            hold.open_to_readers();
        }
    }

    /// Passes a shared lease to a task with this request, if the request matches and the lease may be passed on.
    pub(super) fn hand_over<W>(
        &mut self,
        id: HoldId,
        from: Tenure,
        request: &AcquireRequest,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Grant> {
        let (shared, hold) = self.sharing_mut(id)?;
        let permits = hold.has_permits() || request.has_permits();
        if !request.matches(hold.ttl(), &hold.owner) || permits && request.mode != from.mode {
            return None;
        }
        let fence = shared.next(cx.config, cx.now)?;
        let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| cx.now + max_hold);
        let next = Tenure { number: 0, mode: request.mode, fence, since: cx.now, idle: false };
        if !hold.pass(from, next, ends) {
            return None;
        }
        let inspects = shared.passed(cx.config, cx.now);
        if inspects {
            hold.expedite(cx.now, Duration::ZERO);
        }
        hold.set_timer(cx);
        let grant = Grant { hold: id, tenure: hold.tenure, source: Source::Shared };
        if inspects {
            self.inspect_together(id);
        }
        Some(grant)
    }

    /// Keeps the shared lease after its last tenure, if no other client is known to wait for it.
    pub(super) fn keep_idle<W>(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let Some(limits) = cx.config.sharing.filter(|limits| !limits.idle_timeout.is_zero()) else { return false };
        // Permits are not kept.
        let Some((shared, hold)) = self.shared_hold_mut().filter(|(shared, _)| shared.hold == id) else { return false };
        if shared.others_wait(cx.config) || shared.next(cx.config, cx.now).is_none() {
            return false;
        }
        let idle = Tenure { number: 0, since: cx.now, idle: true, ..from };
        if !hold.pass(from, idle, shared.idle_until(cx.now, &limits)) {
            return false;
        }
        if shared.begin_idle(cx.now) {
            hold.expedite(cx.now, Duration::ZERO);
        }
        hold.set_timer(cx);
        cx.act(Action::KeptIdle);
        true
    }

    /// The backend announces that another client waits.
    pub(super) fn on_queued<W>(&mut self, cx: &mut Context<'_, W, L>) {
        self.on_permits_queued(cx);
        let Some((shared, hold)) = self.shared_hold_mut() else { return };
        shared.unannounced();
        if shared.idle {
            let id = hold.id;
            self.give_back(id, true, cx);
        } else if hold.is_renewing() {
            // The answer to that renewal may be older than the waiter.
            hold.expedite(cx.now, Duration::ZERO);
        }
    }

    /// The server reports the number of other waiting clients.
    pub(super) fn on_waiters<W>(&mut self, others: u32, cx: &mut Context<'_, W, L>) {
        let (Some((shared, hold)), Some(limits)) = (self.shared_hold_mut(), &cx.config.sharing) else { return };
        shared.on_waiters(others, cx.config, limits, cx.now);
        if !shared.idle {
            return;
        }
        if others > 0 {
            let id = hold.id;
            self.give_back(id, true, cx);
        } else {
            hold.limit(shared.idle_until(hold.tenure.since, limits));
            hold.set_timer(cx);
        }
    }

    /// Whether the first queued task should wait within this client: for a tenure of the shared lease, or until the
    /// time for other clients is over.
    pub(super) fn is_worth_waiting<W>(&self, request: &AcquireRequest, cx: &Context<'_, W, L>) -> bool {
        let (Some(shared), Some(limits)) = (&self.shared, &cx.config.sharing) else { return false };
        if request.mode == Mode::Shared {
            // It would have joined already, if it could.
            return false;
        }
        let suits = self.get(shared.hold).is_some_and(|hold| request.matches(hold.ttl(), &hold.owner));
        suits && shared.has_more() || shared.yields(cx.config, limits, cx.now)
    }

    /// The holder of the shared lease, for tasks that wait.
    pub(super) fn occupied(&self, now: Moment) -> Option<Occupied> {
        let hold = self.any_shared()?;
        let by = Occupant::Holder(Holder { id: hold.holder, owner: hold.owner.clone() });
        let rest = hold.rest(now);
        let expiry = if rest == Duration::MAX { Expiry::Never } else { Expiry::In(rest) };
        Some(Occupied::new(by, expiry).with_held_for(Some(now.since(hold.tenure.since))))
    }
}

/// Readers.
impl<L: Default> Leases<L> {
    /// Begins another tenure of the shared lease, if the request matches and the lease may be joined.
    pub(super) fn join<W>(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> Option<Grant> {
        let (shared, hold) = self.shared_hold_mut()?;
        if request.mode != Mode::Shared || !request.matches(hold.ttl(), &hold.owner) {
            return None;
        }
        let tenure = hold.join(shared.next_reader(cx.now)?, cx.now)?;
        if shared.passed(cx.config, cx.now) {
            hold.expedite(cx.now, Duration::ZERO);
            hold.set_timer(cx);
        }
        Some(Grant { hold: hold.id, tenure, source: Source::Shared })
    }

    /// Ends the tenure of one of several readers. Returns whether others continue.
    pub(super) fn leave(&mut self, id: HoldId, tenure: Tenure) -> bool {
        self.get_mut(id).is_some_and(|hold| hold.leave(tenure))
    }
}

/// Permits.
impl<L: Default> Leases<L> {
    pub(super) fn shares_permits(&self, id: HoldId) -> bool {
        self.permits.iter().any(|shared| shared.hold == id)
    }

    /// Adds a lease. It starts with what the other leases know about waiters.
    pub(super) fn share_permits<W>(&mut self, shared: Option<SharedLease>, cx: &Context<'_, W, L>) {
        let (Some(mut shared), Some(limits)) = (shared, &cx.config.sharing) else { return };
        if let Some(other) = self.permits.last() {
            shared.inspect_with(other);
            if other.others_wait(cx.config) {
                shared.on_waiters(1, cx.config, limits, cx.now);
            }
        }
        self.permits.push(shared);
    }

    /// This lease checks whether other clients wait, so the other leases need not check.
    pub(super) fn inspect_together(&mut self, id: HoldId) {
        let Some(inspecting) = self.permits.iter().find(|shared| shared.hold == id).cloned() else { return };
        for shared in self.permits.iter_mut() {
            shared.inspect_with(&inspecting);
        }
    }

    pub(super) fn on_permit_waiters<W>(&mut self, others: u32, claims: u32, cx: &mut Context<'_, W, L>) {
        let Some(limits) = &cx.config.sharing else { return };
        for shared in self.permits.iter_mut() {
            shared.on_waiters(others, cx.config, limits, cx.now);
            if claims > 0 {
                // The next message may be about a claim of this client.
                shared.unannounced();
            }
        }
    }

    /// The backend announces a waiter, of another client or of this one.
    pub(super) fn on_permits_queued<W>(&mut self, cx: &mut Context<'_, W, L>) {
        for shared in self.permits.iter_mut() {
            shared.unannounced();
            let hold = self.holds.iter_mut().find(|hold| hold.id == shared.hold);
            if let Some(hold) = hold.filter(|hold| hold.is_renewing()) {
                // The answer to that renewal may be older than the waiter.
                hold.expedite(cx.now, Duration::ZERO);
            }
        }
    }

    /// A claim of this client is refused, or is `queued` on the backend. The backend announces only the waiters of other clients, and
    /// this one may have replaced the announcement of the next. A claim that is in the queue for a shared lease needs no other one.
    pub(super) fn on_own_claim<W>(&mut self, in_line: bool, queued: bool, cx: &mut Context<'_, W, L>) {
        if in_line {
            self.permits.iter_mut().for_each(SharedLease::unannounced);
        } else if queued {
            self.on_queued(cx);
        }
    }

    /// Makes the timer of one of these leases fire at `at` or earlier. If all of them are being renewed, the next reply
    /// calls this again.
    pub(super) fn wake_at<W>(&mut self, at: Moment, cx: &mut Context<'_, W, L>) {
        let is_shared = |id: HoldId| self.permits.iter().any(|shared| shared.hold == id);
        if let Some(hold) = self.holds.iter_mut().find(|hold| is_shared(hold.id) && !hold.is_renewing()) {
            hold.expedite(cx.now, at.since(cx.now));
            hold.set_timer(cx);
        }
    }

    /// How many leases will be passed on, or must be left free after their current tenures.
    pub(super) fn permits_to_pass<W>(&self, cx: &Context<'_, W, L>) -> usize {
        let Some(limits) = &cx.config.sharing else { return 0 };
        let goes_on = |shared: &&SharedLease| shared.has_more() || shared.yields(cx.config, limits, cx.now);
        self.permits.iter().filter(goes_on).count()
    }
}
