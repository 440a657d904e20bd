//! The leases of one key, and how the tasks of a client share them.

use super::claim::AcquireRequest;
use super::env::spread;
use super::hold::{End, Firing, Hold, HoldId, LeaseHistory, TaskLease, Tenure};
use super::{Action, Ended, Env, Grant, PendingRelease, Source};
use crate::{
    Expiry, Holder, HolderId, Lease, LossReason, Mode, Moment, Occupant, Occupied, Renew, Renewal, RenewalPlan,
    TokenBlock, Unknown,
};
use std::time::Duration;

/// The delay of the first renewal of a hold, which makes the lease of a hand-off a full one, and after which the server
/// reports changes. Shorter holds, which are common, avoid that cost.
const FIRST_RENEWAL: Duration = Duration::from_millis(25);

/// The leases that this client has of one key, including those that its tasks share.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Leases<L> {
    pub(crate) holds: Vec<Hold<L>>,
    /// The history of the last task lease.
    history: LeaseHistory,
    /// When the history ends, if the engine is kept until then; [`Moment::NEVER`] if it is not.
    history_timer: Moment,
    /// Until this time no queued task claims: the key is left to clients that only poll.
    pub(crate) yield_until: Moment,
    last_hold: u64,
}

/// The result of taking an idle lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdleLease {
    /// There is no idle lease.
    None,
    /// The caller has it.
    Taken(Grant),
    /// It does not match the request and must be released.
    Release(Box<PendingRelease>),
}

impl<L: Default> Leases<L> {
    pub(crate) fn new() -> Self {
        let (history, history_timer, yield_until) = (LeaseHistory::default(), Moment::NEVER, Moment::default());
        Self { holds: Vec::new(), history, history_timer, yield_until, last_hold: 0 }
    }

    /// Whether there is no lease, and the next one does not depend on the last.
    pub(crate) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.history_timer == Moment::NEVER
    }

    pub(crate) fn get(&self, id: HoldId) -> Option<&Hold<L>> {
        self.holds.iter().find(|hold| hold.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: HoldId) -> Option<&mut Hold<L>> {
        self.holds.iter_mut().find(|hold| hold.id == id)
    }

    pub(crate) fn begin<W>(
        &mut self,
        holder: HolderId,
        request: &AcquireRequest,
        tokens: TokenBlock,
        lease: Lease,
        stray_until: Moment,
        cx: &mut Env<'_, W, L>,
    ) -> (HoldId, Tenure) {
        let now = cx.now;
        let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| now + max_hold);
        let first = now + FIRST_RENEWAL.min(lease.remaining(now) / 3);
        let plan = RenewalPlan::new(lease, request.ttl, first, ends);
        self.last_hold += 1;
        let id = HoldId(self.last_hold);
        let mut hold = Hold::begin(id, holder, request, tokens.first(), plan, now);
        hold.stray_until = stray_until;
        cx.act(Action::Began);
        hold.set_timer(cx);
        let tenure = hold.tenure;
        if self.holds.is_empty() {
            // A key usually has one.
            self.holds.reserve_exact(1);
        }
        self.holds.push(hold);
        (id, tenure)
    }

    /// Removes a hold that is over.
    pub(crate) fn end<W>(&mut self, id: HoldId, end: End, cx: &mut Env<'_, W, L>) {
        let Some(index) = self.holds.iter().position(|hold| hold.id == id) else { return };
        let hold = self.holds.swap_remove(index);
        let (tenure, others) = hold.tenures();
        let others = others.collect();
        let Hold { id, lease, timer, .. } = hold;
        if self.holds.is_empty() {
            self.holds = Vec::new();
        }
        cx.act(Action::Ended(Box::new(Ended { hold: id, lease, tenure, others, end, timer })));
    }

    /// The release of a hold.
    pub(crate) fn pending_release<W>(&self, id: HoldId, cx: &Env<'_, W, L>) -> Option<Box<PendingRelease>> {
        self.get(id).map(|hold| {
            let (key, until) = (cx.key.clone(), cx.now + hold.plan.ttl().get());
            Box::new(PendingRelease { key, holder: hold.holder, until, stray_until: hold.stray_until, is_hold: true })
        })
    }

    /// Ends a lease that no task has.
    pub(crate) fn end_unused<W>(&mut self, id: HoldId, background: bool, cx: &mut Env<'_, W, L>) {
        if background && let Some(release) = self.pending_release(id, cx) {
            cx.act(Action::Release(release));
        }
        self.end(id, End::Released, cx);
    }

    /// Ends a hold that is lost. `taken` says whether a task has read its grant.
    pub(crate) fn lose<W>(&mut self, id: HoldId, reason: LossReason, taken: bool, cx: &mut Env<'_, W, L>) {
        // After `max_hold` its task may hang forever, and not every backend has leases that end. A lease without a task is
        // released only here.
        if let Some(hold) = self.get(id)
            && (reason == LossReason::MaxHold || hold.tenure.idle || !taken)
            && let Some(release) = self.pending_release(id, cx)
        {
            cx.act(Action::Release(release));
        }
        self.end(id, End::Lost(reason), cx);
    }

    /// Renews each hold after `after`, because the key may have changed.
    pub(crate) fn expedite<W>(&mut self, after: Duration, cx: &mut Env<'_, W, L>) {
        self.renew_soon(|hold, now| hold.expedite(now, after), cx);
    }

    /// The backend hints that the key may have changed.
    pub(crate) fn hinted<W>(&mut self, cx: &mut Env<'_, W, L>) {
        self.renew_soon(Hold::hinted, cx);
    }

    fn renew_soon<W>(&mut self, expedite: impl Fn(&mut Hold<L>, Moment), cx: &mut Env<'_, W, L>) {
        for hold in &mut self.holds {
            hold.unannounced();
            expedite(hold, cx.now);
            hold.set_timer(cx);
        }
    }

    /// See [`super::KeyEngine::hold_due`]. `Err` if the hold is over.
    pub(crate) fn due<W>(
        &mut self,
        id: HoldId,
        firing: Firing,
        cx: &mut Env<'_, W, L>,
    ) -> Result<Option<Renewal>, LossReason> {
        let Firing { at: fired, ahead, not_before } = firing;
        let Some(hold) = self.get_mut(id).filter(|hold| hold.timer == fired) else { return Ok(None) };
        hold.timer = Moment::NEVER;
        if let Some(reason) = hold.lapse(cx.now) {
            return Err(reason);
        }
        let renewal = hold.renewal(cx.key, cx.config.drift, cx.now, ahead);
        if renewal.is_none()
            && let Some(next) = hold.next_timer(cx.now)
        {
            hold.timer = if ahead.is_zero() { next.max(not_before) } else { fired };
            cx.act(Action::SetTimer { hold: id, from: Moment::NEVER, to: hold.timer });
        }
        Ok(renewal)
    }

    /// The reply to a renewal that was sent at `sent`: the number of other waiting clients that the server reports, `None` if it did not
    /// answer; or why the hold is over.
    pub(crate) fn renewed<W>(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        cx: &mut Env<'_, W, L>,
    ) -> Result<Option<u32>, LossReason> {
        let (drift, now, random) = (cx.config.drift, cx.now, cx.rng.next_u64());
        let Some(hold) = self.get_mut(id) else { return Ok(None) };
        // A lease that has expired by now ended by itself, even if another holder has the key.
        let waiters = match (hold.lapse(now), answer) {
            (Some(reason), _) => return Err(reason),
            (None, Ok(Renew::Renewed { waiters })) => hold.renewed(sent, drift, now, random).map(|()| Some(waiters))?,
            (None, Ok(Renew::Absent)) => return Err(LossReason::Deleted),
            (None, Ok(Renew::TakenBy(occupant))) => return Err(LossReason::TakenBy(occupant)),
            (None, Err(_)) => {
                hold.not_renewed(now, random);
                None
            }
        };
        hold.set_timer(cx);
        Ok(waiters)
    }
}

/// The leases that the tasks of the client share: one after another, or, for readers and permits, at the same time.
impl<L: Default> Leases<L> {
    pub(crate) fn is_sharing(&self, id: HoldId) -> bool {
        self.get(id).is_some_and(Hold::is_shared)
    }

    /// A hold that tasks share.
    pub(crate) fn any_task_hold(&self) -> Option<&Hold<L>> {
        self.holds.iter().find(|hold| hold.is_shared())
    }

    /// The hold whose lease no task has at the moment.
    pub(crate) fn idle(&self) -> Option<(HoldId, Tenure)> {
        self.holds.iter().find(|hold| hold.tenure.idle && hold.is_shared()).map(|hold| (hold.id, hold.tenure))
    }

    /// Whether this task lease has no token left for another tenure.
    pub(crate) fn is_used_up(&self, id: HoldId) -> bool {
        self.get(id).and_then(|hold| hold.task_lease.as_ref()).is_some_and(TaskLease::is_used_up)
    }

    /// Shares this lease, unless it has already expired. Several leases of permits are shared at the same time.
    pub(crate) fn share<W>(&mut self, id: HoldId, tokens: TokenBlock, cx: &Env<'_, W, L>) {
        let history = std::mem::take(&mut self.history);
        let Some(hold) = self.get(id).filter(|hold| hold.lapse(cx.now).is_none()) else { return };
        let (permits, mode) = (hold.has_permits(), hold.tenure.mode);
        let mut task_lease = TaskLease::new(tokens, cx.now, history, cx.config);
        if !permits {
            self.holds.iter_mut().for_each(|hold| hold.task_lease = None);
        } else if let Some(other) = self.permits().last() {
            // It starts with what the other leases know about waiters.
            task_lease.inspect_with(other);
            if other.others_wait(cx.config) {
                task_lease.on_waiters(1, false, cx.config, cx.now);
            }
        }
        let Some(hold) = self.get_mut(id) else { return };
        hold.task_lease = Some(task_lease);
        if mode == Mode::Shared {
            hold.open_to_readers();
        }
    }

    /// Passes a task lease to a task with this request, if the request matches and the lease may be passed on.
    pub(crate) fn hand_over<W>(
        &mut self,
        id: HoldId,
        from: Tenure,
        request: &AcquireRequest,
        cx: &mut Env<'_, W, L>,
    ) -> Option<Grant> {
        let hold = self.get_mut(id)?;
        let permits = hold.has_permits() || request.has_permits();
        if !request.matches(hold.plan.ttl(), &hold.owner) || permits && request.mode != from.mode {
            return None;
        }
        let fence = hold.task_lease.as_ref()?.next(cx.config, cx.now)?;
        let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| cx.now + max_hold);
        let next = Tenure { number: 0, mode: request.mode, fence, since: cx.now, idle: false };
        if !hold.pass(from, next, ends) {
            return None;
        }
        let inspects = hold.task_lease.as_mut()?.passed(cx.config, cx.now);
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

    /// Keeps the task lease after its last tenure, if no other client is known to wait for it.
    pub(crate) fn keep_idle<W>(&mut self, id: HoldId, from: Tenure, cx: &mut Env<'_, W, L>) -> bool {
        if !cx.open || cx.config.limits().idle_timeout.is_zero() {
            return false;
        }
        // Permits are not kept.
        let Some(hold) = self.get_mut(id).filter(|hold| !hold.has_permits()) else { return false };
        let is_kept = |lease: &&TaskLease| !lease.others_wait(cx.config) && lease.next(cx.config, cx.now).is_some();
        let Some(until) = hold.task_lease.as_ref().filter(is_kept).map(|lease| lease.idle_until(cx.now, cx.config))
        else {
            return false;
        };
        let idle = Tenure { number: 0, since: cx.now, idle: true, ..from };
        if !hold.pass(from, idle, until) {
            return false;
        }
        if hold.task_lease.as_mut().is_some_and(|lease| lease.begin_idle(cx.now)) {
            hold.expedite(cx.now, Duration::ZERO);
        }
        hold.set_timer(cx);
        true
    }

    /// The backend announces a waiter, of another client or of this one.
    pub(crate) fn on_queued<W>(&mut self, cx: &mut Env<'_, W, L>) {
        for hold in self.holds.iter_mut().filter(|hold| hold.is_shared()) {
            hold.unannounced();
            if hold.renewing {
                // The answer to that renewal may be older than the waiter.
                hold.expedite(cx.now, Duration::ZERO);
            }
        }
        if let Some((id, _)) = self.idle() {
            self.end_unused(id, true, cx);
        }
    }

    /// The server reports the number of other waiting clients, besides so many claims of this one.
    pub(crate) fn on_waiters<W>(&mut self, others: u32, announced: bool, claims: u32, cx: &mut Env<'_, W, L>) {
        for task_lease in self.holds.iter_mut().filter_map(|hold| hold.task_lease.as_mut()) {
            task_lease.on_waiters(others, announced, cx.config, cx.now);
            if claims > 0 {
                // The next message may be about a claim of this client.
                task_lease.unannounced();
            }
        }
        let Some((id, idle)) = self.idle() else { return };
        if others > 0 {
            self.end_unused(id, true, cx);
        } else if let Some(hold) = self.get_mut(id)
            && let Some(task_lease) = &hold.task_lease
        {
            let until = task_lease.idle_until(idle.since, cx.config);
            hold.plan.hand_on(until);
            hold.set_timer(cx);
        }
    }

    /// Whether the first queued task should wait within this client: for a tenure of the task lease, or until the
    /// time for other clients is over.
    pub(crate) fn is_worth_waiting<W>(&self, request: &AcquireRequest, cx: &Env<'_, W, L>) -> bool {
        if request.mode == Mode::Shared {
            // It would have joined already, if it could.
            return false;
        }
        let hold = self.holds.iter().find(|hold| hold.is_shared() && !hold.has_permits());
        let Some((hold, task_lease)) = hold.and_then(|hold| Some((hold, hold.task_lease.as_ref()?))) else {
            return false;
        };
        let suits = request.matches(hold.plan.ttl(), &hold.owner);
        suits && task_lease.has_more() || task_lease.yields(cx.config, cx.now)
    }

    /// The holder of the task lease, for tasks that wait.
    pub(crate) fn occupied(&self, now: Moment) -> Option<Occupied> {
        let hold = self.any_task_hold()?;
        let by = Occupant::Holder(Holder { id: hold.holder, owner: hold.owner.clone() });
        let rest = hold.plan.rest(now);
        let expiry = if rest == Duration::MAX { Expiry::Never } else { Expiry::In(rest) };
        Some(Occupied::new(by, expiry).with_held_for(Some(now.since(hold.tenure.since))))
    }
}

/// Readers.
impl<L: Default> Leases<L> {
    /// Begins another tenure of the task lease, if the request matches and the lease may be joined.
    pub(crate) fn join<W>(&mut self, request: &AcquireRequest, cx: &mut Env<'_, W, L>) -> Option<Grant> {
        let hold = self.holds.iter_mut().find(|hold| hold.is_shared() && !hold.has_permits())?;
        if request.mode != Mode::Shared || !request.matches(hold.plan.ttl(), &hold.owner) {
            return None;
        }
        let fence = hold.task_lease.as_ref()?.next_reader(cx.now)?;
        let tenure = hold.join(fence, cx.now)?;
        if hold.task_lease.as_mut()?.passed(cx.config, cx.now) {
            hold.expedite(cx.now, Duration::ZERO);
            hold.set_timer(cx);
        }
        Some(Grant { hold: hold.id, tenure, source: Source::Shared })
    }

    /// Ends the tenure of one of several readers. Returns whether others continue.
    pub(crate) fn leave(&mut self, id: HoldId, tenure: Tenure) -> bool {
        self.get_mut(id).is_some_and(|hold| hold.leave(tenure))
    }
}

/// Permits.
impl<L: Default> Leases<L> {
    /// The leases of permits that tasks share.
    fn permits(&self) -> impl DoubleEndedIterator<Item = &TaskLease> {
        self.holds.iter().filter(|hold| hold.has_permits()).filter_map(|hold| hold.task_lease.as_ref())
    }

    fn permits_mut(&mut self) -> impl Iterator<Item = &mut TaskLease> {
        self.holds.iter_mut().filter(|hold| hold.has_permits()).filter_map(|hold| hold.task_lease.as_mut())
    }

    pub(crate) fn has_shared_permits(&self) -> bool {
        self.permits().next().is_some()
    }

    /// This lease checks whether other clients wait, so the other leases need not check.
    fn inspect_together(&mut self, id: HoldId) {
        let inspecting = self.get(id).filter(|hold| hold.has_permits()).and_then(|hold| hold.task_lease.clone());
        if let Some(inspecting) = inspecting {
            self.permits_mut().for_each(|task_lease| task_lease.inspect_with(&inspecting));
        }
    }

    /// A claim of this client is refused, or is `queued` on the backend. The backend announces only the waiters of other clients, and
    /// this one may have replaced the announcement of the next. A claim that is in the queue for a task lease needs no other one.
    pub(crate) fn on_own_claim<W>(&mut self, in_queue: bool, queued: bool, cx: &mut Env<'_, W, L>) {
        if in_queue {
            self.permits_mut().for_each(TaskLease::unannounced);
        } else if queued {
            self.on_queued(cx);
        }
    }

    /// Makes the timer of one of these leases fire at `at` or earlier. If all of them are being renewed, the next reply
    /// calls this again.
    pub(crate) fn wake_at<W>(&mut self, at: Moment, cx: &mut Env<'_, W, L>) {
        let waits = |hold: &&mut Hold<L>| hold.is_shared() && hold.has_permits() && !hold.renewing;
        if let Some(hold) = self.holds.iter_mut().find(waits) {
            hold.expedite(cx.now, at.since(cx.now));
            hold.set_timer(cx);
        }
    }

    /// How many leases will be passed on, or must be left free after their current tenures.
    pub(crate) fn permits_to_pass<W>(&self, cx: &Env<'_, W, L>) -> usize {
        let goes_on = |task_lease: &&TaskLease| task_lease.has_more() || task_lease.yields(cx.config, cx.now);
        self.permits().filter(goes_on).count()
    }
}

/// What remains of a task lease after its end: the history that the next lease continues, and the time for which the key is left
/// free.
impl<L: Default> Leases<L> {
    /// This task lease is about to be released. `queued` says whether a task of this client waits at the backend.
    pub(crate) fn stop_sharing<W>(&mut self, id: HoldId, queued: bool, cx: &mut Env<'_, W, L>) {
        let task_lease = self.get_mut(id).and_then(|hold| hold.task_lease.take());
        let Some(task_lease) = task_lease else { return };
        if task_lease.yields(cx.config, cx.now) {
            let (capabilities, random) = (&cx.config.capabilities, cx.rng.next_u64());
            let blind = || spread(capabilities.polls.yields(), random);
            self.yield_until = cx.now + if capabilities.queues { cx.config.limits().pause } else { blind() };
        }
        self.history = task_lease.ended(queued, cx.config, cx.now);
        // A lease that is kept is passed on although no task waits, so the next task may come to an engine that is empty. A task
        // that waits at the backend keeps the engine. Only exclusive leases are kept.
        let is_kept = !queued && !cx.config.limits().idle_timeout.is_zero();
        let is_exclusive = self.get(id).is_some_and(|hold| hold.tenure.mode == Mode::Exclusive);
        if is_kept && is_exclusive && self.history_timer == Moment::NEVER {
            self.set_history_timer(Moment::default(), cx);
        }
    }

    /// The timer of the history was set to `fired` and has fired. See [`super::KeyEngine::hold_due`].
    pub(crate) fn history_due<W>(&mut self, fired: Moment, not_before: Moment, cx: &mut Env<'_, W, L>) {
        if self.history_timer == fired {
            self.history_timer = Moment::NEVER;
            self.set_history_timer(not_before, cx);
        }
    }

    /// The client ends: no other lease follows.
    pub(crate) fn forget_history<W>(&mut self, cx: &mut Env<'_, W, L>) {
        let from = std::mem::replace(&mut self.history_timer, Moment::NEVER);
        if from != Moment::NEVER {
            cx.act(Action::SetTimer { hold: HoldId::NONE, from, to: Moment::NEVER });
        }
    }

    /// Keeps the engine for as long as the next lease depends on the last one.
    fn set_history_timer<W>(&mut self, not_before: Moment, cx: &mut Env<'_, W, L>) {
        let until = self.yield_until.max(self.history.continues_until());
        if cx.open && cx.now < until {
            self.history_timer = until.max(not_before);
            cx.act(Action::SetTimer { hold: HoldId::NONE, from: Moment::NEVER, to: self.history_timer });
        }
    }
}
