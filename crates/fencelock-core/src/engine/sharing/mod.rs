//! The leases of one key, and how the tasks of a client share them.

mod task_lease;

use super::claim::AcquireRequest;
use super::context::spread;
use super::hold::{Duty, End, Firing, Hold, HoldId, HoldParameters, Tenure};
use super::{Action, Config, Context, Ended, Grant, PendingRelease, SharingLimits, Source};
use crate::{
    Expiry, Holder, HolderId, Lease, LossReason, Mode, Moment, Occupant, Occupied, Renew, RenewalPlan, TokenBlock,
    Unknown,
};
use std::time::Duration;

pub(crate) use task_lease::OtherWaiters;
use task_lease::{LeaseHistory, TaskLease};

/// The delay of the first renewal of a hold, which makes the lease of a hand-off a full one, and after which the server
/// reports changes. Shorter holds, which are common, avoid that cost.
const FIRST_RENEWAL: Duration = Duration::from_millis(25);

/// The leases that this client has of one key, including those that its tasks share.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Leases<L> {
    pub(crate) holds: Vec<Hold<L>>,
    /// The lease that tasks share.
    task_lease: Option<TaskLease>,
    /// The leases of permits that tasks share, in the order of their holds.
    pub(crate) permits: Vec<TaskLease>,
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
pub(crate) enum IdleLease {
    /// There is no idle lease.
    None,
    /// The caller has it.
    Taken(Grant),
    /// It does not match the request and must be released.
    Release(Box<PendingRelease>),
}

/// The part of the reply to a renewal that concerns other tasks.
pub(crate) enum Renewed {
    /// The hold is over.
    Lost(LossReason),
    /// The number of other waiting clients that the server reports; `None` if it did not answer.
    Waiters(Option<u32>),
}

impl<L: Default> Leases<L> {
    pub(crate) fn new() -> Self {
        let (history, history_timer, yield_until) = (LeaseHistory::default(), Moment::NEVER, Moment::default());
        let (task_lease, permits) = (None, Vec::new());
        Self { holds: Vec::new(), task_lease, permits, history, history_timer, yield_until, last_hold: 0 }
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
        cx: &mut Context<'_, W, L>,
    ) -> (HoldId, Tenure) {
        let now = cx.now;
        let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| now + max_hold);
        let first = now + FIRST_RENEWAL.min(lease.remaining(now) / 3);
        let plan = RenewalPlan::new(lease, request.ttl, first, ends);
        let (owner, fence) = (request.owner.clone(), tokens.first());
        self.last_hold += 1;
        let id = HoldId(self.last_hold);
        let mode = request.mode;
        let mut hold = Hold::begin(id, HoldParameters { holder, owner, mode, fence, plan, stray_until }, now);
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
    pub(crate) fn end<W>(&mut self, id: HoldId, end: End, cx: &mut Context<'_, W, L>) {
        self.take_task_lease(id);
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
    pub(crate) fn pending_release<W>(&self, id: HoldId, cx: &Context<'_, W, L>) -> Option<Box<PendingRelease>> {
        self.get(id).map(|hold| {
            let (key, until) = (cx.key.clone(), cx.now + hold.ttl().get());
            Box::new(PendingRelease { key, holder: hold.holder, until, stray_until: hold.stray_until, is_hold: true })
        })
    }

    /// Ends a lease that no task has.
    pub(crate) fn end_unused<W>(&mut self, id: HoldId, background: bool, cx: &mut Context<'_, W, L>) {
        if background && let Some(release) = self.pending_release(id, cx) {
            cx.act(Action::Release(release));
        }
        self.end(id, End::Released, cx);
    }

    /// Ends a hold that is lost. `taken` says whether a task has read its grant.
    pub(crate) fn lose<W>(&mut self, id: HoldId, reason: LossReason, taken: bool, cx: &mut Context<'_, W, L>) {
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
    pub(crate) fn expedite<W>(&mut self, after: Duration, cx: &mut Context<'_, W, L>) {
        self.renew_soon(|hold, now| hold.expedite(now, after), cx);
    }

    /// The backend hints that the key may have changed.
    pub(crate) fn hinted<W>(&mut self, cx: &mut Context<'_, W, L>) {
        self.renew_soon(Hold::hinted, cx);
    }

    fn renew_soon<W>(&mut self, expedite: impl Fn(&mut Hold<L>, Moment), cx: &mut Context<'_, W, L>) {
        self.task_lease.iter_mut().chain(self.permits.iter_mut()).for_each(TaskLease::unannounced);
        for hold in &mut self.holds {
            expedite(hold, cx.now);
            hold.set_timer(cx);
        }
    }

    /// See [`super::KeyEngine::hold_due`]. `Err` if the hold is over.
    pub(crate) fn due<W>(
        &mut self,
        id: HoldId,
        firing: Firing,
        cx: &mut Context<'_, W, L>,
    ) -> Result<Duty, LossReason> {
        let Firing { at: fired, ahead, not_before } = firing;
        let Some(hold) = self.get_mut(id).filter(|hold| hold.timer == fired) else { return Ok(Duty::Nothing) };
        hold.timer = Moment::NEVER;
        if let Some(reason) = hold.lapse(cx.now) {
            return Err(reason);
        }
        let duty = hold.duty(cx.key, cx.config.drift, cx.now, ahead);
        if matches!(duty, Duty::Nothing)
            && let Some(next) = hold.next_timer(cx.now)
        {
            hold.timer = if ahead.is_zero() { next.max(not_before) } else { fired };
            cx.act(Action::SetTimer { hold: id, from: Moment::NEVER, to: hold.timer });
        }
        Ok(duty)
    }

    /// The reply to a renewal that was sent at `sent`.
    pub(crate) fn renewed<W>(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Renewed> {
        let (drift, now, random) = (cx.config.drift, cx.now, cx.rng.next_u64());
        let hold = self.get_mut(id)?;
        // A lease that has expired by now ended by itself, even if another holder has the key.
        let answer = match (hold.lapse(now), answer) {
            (Some(reason), _) => Err(reason),
            (None, Ok(Renew::Renewed { waiters })) => hold.renewed(sent, drift, now, random).map(|()| Some(waiters)),
            (None, Ok(Renew::Absent)) => Err(LossReason::Deleted),
            (None, Ok(Renew::TakenBy(occupant))) => Err(LossReason::TakenBy(occupant)),
            (None, Err(_)) => {
                hold.not_renewed(now, random);
                Ok(None)
            }
        };
        Some(match answer {
            Err(reason) => Renewed::Lost(reason),
            Ok(waiters) => {
                hold.set_timer(cx);
                Renewed::Waiters(waiters)
            }
        })
    }
}

/// The leases that the tasks of the client share: one after another, or, for readers and permits, at the same time.
impl<L: Default> Leases<L> {
    pub(crate) fn is_sharing(&self, id: HoldId) -> bool {
        self.sharing(id).is_some()
    }

    fn sharing(&self, id: HoldId) -> Option<&TaskLease> {
        self.task_lease.iter().chain(self.permits.iter()).find(|task_lease| task_lease.hold == id)
    }

    fn sharing_mut(&mut self, id: HoldId) -> Option<(&mut TaskLease, &mut Hold<L>)> {
        let task_lease =
            self.task_lease.iter_mut().chain(self.permits.iter_mut()).find(|task_lease| task_lease.hold == id)?;
        let hold = self.holds.iter_mut().find(|hold| hold.id == id)?;
        Some((task_lease, hold))
    }

    /// Stops sharing a lease.
    fn take_task_lease(&mut self, id: HoldId) -> Option<TaskLease> {
        let one = self.task_lease.take_if(|task_lease| task_lease.hold == id);
        one.or_else(|| {
            let index = self.permits.iter().position(|task_lease| task_lease.hold == id)?;
            Some(self.permits.remove(index))
        })
    }

    /// A lease that tasks share: the exclusive or shared one, or one of permits.
    pub(crate) fn any_task_hold(&self) -> Option<&Hold<L>> {
        self.task_lease.iter().chain(self.permits.iter()).next().and_then(|task_lease| self.get(task_lease.hold))
    }

    fn task_hold_mut(&mut self) -> Option<(&mut TaskLease, &mut Hold<L>)> {
        let task_lease = self.task_lease.as_mut()?;
        let hold = self.holds.iter_mut().find(|hold| hold.id == task_lease.hold)?;
        Some((task_lease, hold))
    }

    /// The task lease, if it is idle.
    pub(crate) fn idle(&self) -> Option<(HoldId, Tenure)> {
        let task_lease = self.task_lease.as_ref().filter(|task_lease| task_lease.idle)?;
        self.get(task_lease.hold).map(|hold| (hold.id, hold.tenure))
    }

    /// Whether this task lease has no token left for another tenure.
    pub(crate) fn is_used_up(&self, id: HoldId) -> bool {
        self.sharing(id).is_some_and(TaskLease::is_used_up)
    }

    /// Shares this lease, unless it has already expired. Several leases of permits are shared at the same time.
    pub(crate) fn share<W>(&mut self, id: HoldId, tokens: TokenBlock, limits: &SharingLimits, cx: &Context<'_, W, L>) {
        let history = std::mem::take(&mut self.history);
        let alive = self.get(id).is_some_and(|hold| hold.lapse(cx.now).is_none());
        let task_lease = alive.then(|| TaskLease::new(id, tokens, cx.now, history, cx.config, limits));
        if self.get(id).is_some_and(Hold::has_permits) {
            return self.share_permits(task_lease, cx);
        }
        self.task_lease = task_lease;
        if let Some(hold) = self.get_mut(id).filter(|hold| alive && hold.tenure.mode == Mode::Shared) {
            hold.open_to_readers();
        }
    }

    /// Passes a task lease to a task with this request, if the request matches and the lease may be passed on.
    pub(crate) fn hand_over<W>(
        &mut self,
        id: HoldId,
        from: Tenure,
        request: &AcquireRequest,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Grant> {
        let (task_lease, hold) = self.sharing_mut(id)?;
        let permits = hold.has_permits() || request.has_permits();
        if !request.matches(hold.ttl(), &hold.owner) || permits && request.mode != from.mode {
            return None;
        }
        let fence = task_lease.next(cx.config, cx.now)?;
        let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| cx.now + max_hold);
        let next = Tenure { number: 0, mode: request.mode, fence, since: cx.now, idle: false };
        if !hold.pass(from, next, ends) {
            return None;
        }
        let inspects = task_lease.passed(cx.config, cx.now);
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
    pub(crate) fn keep_idle<W>(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let Some(limits) = cx.config.sharing.filter(|limits| cx.open && !limits.idle_timeout.is_zero()) else {
            return false;
        };
        // Permits are not kept.
        let Some((task_lease, hold)) = self.task_hold_mut().filter(|(task_lease, _)| task_lease.hold == id) else {
            return false;
        };
        if task_lease.others_wait(cx.config) || task_lease.next(cx.config, cx.now).is_none() {
            return false;
        }
        let idle = Tenure { number: 0, since: cx.now, idle: true, ..from };
        if !hold.pass(from, idle, task_lease.idle_until(cx.now, &limits)) {
            return false;
        }
        if task_lease.begin_idle(cx.now) {
            hold.expedite(cx.now, Duration::ZERO);
        }
        hold.set_timer(cx);
        true
    }

    /// The backend announces that another client waits.
    pub(crate) fn on_queued<W>(&mut self, cx: &mut Context<'_, W, L>) {
        self.on_permits_queued(cx);
        let Some((task_lease, hold)) = self.task_hold_mut() else { return };
        task_lease.unannounced();
        if task_lease.idle {
            let id = hold.id;
            self.end_unused(id, true, cx);
        } else if hold.is_renewing() {
            // The answer to that renewal may be older than the waiter.
            hold.expedite(cx.now, Duration::ZERO);
        }
    }

    /// The server reports the number of other waiting clients.
    pub(crate) fn on_waiters<W>(&mut self, waiters: OtherWaiters, cx: &mut Context<'_, W, L>) {
        let (Some((task_lease, hold)), Some(limits)) = (self.task_hold_mut(), &cx.config.sharing) else { return };
        task_lease.on_waiters(waiters, cx.config, limits, cx.now);
        if !task_lease.idle {
            return;
        }
        if waiters.others > 0 {
            let id = hold.id;
            self.end_unused(id, true, cx);
        } else {
            hold.limit(task_lease.idle_until(hold.tenure.since, limits));
            hold.set_timer(cx);
        }
    }

    /// Whether the first queued task should wait within this client: for a tenure of the task lease, or until the
    /// time for other clients is over.
    pub(crate) fn is_worth_waiting<W>(&self, request: &AcquireRequest, cx: &Context<'_, W, L>) -> bool {
        let (Some(task_lease), Some(limits)) = (&self.task_lease, &cx.config.sharing) else { return false };
        if request.mode == Mode::Shared {
            // It would have joined already, if it could.
            return false;
        }
        let suits = self.get(task_lease.hold).is_some_and(|hold| request.matches(hold.ttl(), &hold.owner));
        suits && task_lease.has_more() || task_lease.yields(cx.config, limits, cx.now)
    }

    /// The holder of the task lease, for tasks that wait.
    pub(crate) fn occupied(&self, now: Moment) -> Option<Occupied> {
        let hold = self.any_task_hold()?;
        let by = Occupant::Holder(Holder { id: hold.holder, owner: hold.owner.clone() });
        let rest = hold.rest(now);
        let expiry = if rest == Duration::MAX { Expiry::Never } else { Expiry::In(rest) };
        Some(Occupied::new(by, expiry).with_held_for(Some(now.since(hold.tenure.since))))
    }
}

/// Readers.
impl<L: Default> Leases<L> {
    /// Begins another tenure of the task lease, if the request matches and the lease may be joined.
    pub(crate) fn join<W>(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> Option<Grant> {
        let (task_lease, hold) = self.task_hold_mut()?;
        if request.mode != Mode::Shared || !request.matches(hold.ttl(), &hold.owner) {
            return None;
        }
        let tenure = hold.join(task_lease.next_reader(cx.now)?, cx.now)?;
        if task_lease.passed(cx.config, cx.now) {
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
    pub(crate) fn shares_permits(&self, id: HoldId) -> bool {
        self.permits.iter().any(|task_lease| task_lease.hold == id)
    }

    /// Adds a lease. It starts with what the other leases know about waiters.
    fn share_permits<W>(&mut self, task_lease: Option<TaskLease>, cx: &Context<'_, W, L>) {
        let (Some(mut task_lease), Some(limits)) = (task_lease, &cx.config.sharing) else { return };
        if let Some(other) = self.permits.last() {
            task_lease.inspect_with(other);
            if other.others_wait(cx.config) {
                task_lease.on_waiters(OtherWaiters { others: 1, announced: false }, cx.config, limits, cx.now);
            }
        }
        self.permits.push(task_lease);
    }

    /// This lease checks whether other clients wait, so the other leases need not check.
    fn inspect_together(&mut self, id: HoldId) {
        let Some(inspecting) = self.permits.iter().find(|task_lease| task_lease.hold == id).cloned() else { return };
        for task_lease in &mut self.permits {
            task_lease.inspect_with(&inspecting);
        }
    }

    pub(crate) fn on_permit_waiters<W>(&mut self, waiters: OtherWaiters, claims: u32, cx: &mut Context<'_, W, L>) {
        let Some(limits) = &cx.config.sharing else { return };
        for task_lease in &mut self.permits {
            task_lease.on_waiters(waiters, cx.config, limits, cx.now);
            if claims > 0 {
                // The next message may be about a claim of this client.
                task_lease.unannounced();
            }
        }
    }

    /// The backend announces a waiter, of another client or of this one.
    fn on_permits_queued<W>(&mut self, cx: &mut Context<'_, W, L>) {
        for task_lease in &mut self.permits {
            task_lease.unannounced();
            let hold = self.holds.iter_mut().find(|hold| hold.id == task_lease.hold);
            if let Some(hold) = hold.filter(|hold| hold.is_renewing()) {
                // The answer to that renewal may be older than the waiter.
                hold.expedite(cx.now, Duration::ZERO);
            }
        }
    }

    /// A claim of this client is refused, or is `queued` on the backend. The backend announces only the waiters of other clients, and
    /// this one may have replaced the announcement of the next. A claim that is in the queue for a task lease needs no other one.
    pub(crate) fn on_own_claim<W>(&mut self, in_queue: bool, queued: bool, cx: &mut Context<'_, W, L>) {
        if in_queue {
            self.permits.iter_mut().for_each(TaskLease::unannounced);
        } else if queued {
            self.on_queued(cx);
        }
    }

    /// Makes the timer of one of these leases fire at `at` or earlier. If all of them are being renewed, the next reply
    /// calls this again.
    pub(crate) fn wake_at<W>(&mut self, at: Moment, cx: &mut Context<'_, W, L>) {
        let is_sharing = |id: HoldId| self.permits.iter().any(|task_lease| task_lease.hold == id);
        if let Some(hold) = self.holds.iter_mut().find(|hold| is_sharing(hold.id) && !hold.is_renewing()) {
            hold.expedite(cx.now, at.since(cx.now));
            hold.set_timer(cx);
        }
    }

    /// How many leases will be passed on, or must be left free after their current tenures.
    pub(crate) fn permits_to_pass<W>(&self, cx: &Context<'_, W, L>) -> usize {
        let Some(limits) = &cx.config.sharing else { return 0 };
        let goes_on = |task_lease: &&TaskLease| task_lease.has_more() || task_lease.yields(cx.config, limits, cx.now);
        self.permits.iter().filter(goes_on).count()
    }
}

/// What remains of a task lease after its end: the history that the next lease continues, and the time for which the key is left
/// free.
impl<L: Default> Leases<L> {
    /// This task lease is about to be released. `queued` says whether a task of this client waits at the backend.
    pub(crate) fn stop_sharing<W>(&mut self, id: HoldId, queued: bool, cx: &mut Context<'_, W, L>) {
        let (Some(task_lease), Some(limits)) = (self.take_task_lease(id), cx.config.sharing) else { return };
        if task_lease.yields(cx.config, &limits, cx.now) {
            self.yield_until = cx.now + yield_for(cx.config, &limits, cx.rng.next_u64());
        }
        self.history = task_lease.ended(queued, cx.config, &limits, cx.now);
        // A lease that is kept is passed on although no task waits, so the next task may come to an engine that is empty. A task
        // that waits at the backend keeps the engine. Only exclusive leases are kept.
        let is_kept = !queued && !limits.idle_timeout.is_zero();
        let is_exclusive = self.get(id).is_some_and(|hold| hold.tenure.mode == Mode::Exclusive);
        if is_kept && is_exclusive && self.history_timer == Moment::NEVER {
            self.set_history_timer(Moment::default(), cx);
        }
    }

    /// The timer of the history was set to `fired` and has fired. See [`super::KeyEngine::hold_due`].
    pub(crate) fn history_due<W>(&mut self, fired: Moment, not_before: Moment, cx: &mut Context<'_, W, L>) {
        if self.history_timer == fired {
            self.history_timer = Moment::NEVER;
            self.set_history_timer(not_before, cx);
        }
    }

    /// The client ends: no other lease follows.
    pub(crate) fn forget_history<W>(&mut self, cx: &mut Context<'_, W, L>) {
        let from = std::mem::replace(&mut self.history_timer, Moment::NEVER);
        if from != Moment::NEVER {
            cx.act(Action::SetTimer { hold: HoldId::NONE, from, to: Moment::NEVER });
        }
    }

    /// Keeps the engine for as long as the next lease depends on the last one.
    fn set_history_timer<W>(&mut self, not_before: Moment, cx: &mut Context<'_, W, L>) {
        let until = self.yield_until.max(self.history.continues_until());
        if cx.open && cx.now < until {
            self.history_timer = until.max(not_before);
            cx.act(Action::SetTimer { hold: HoldId::NONE, from: Moment::NEVER, to: self.history_timer });
        }
    }
}

/// How long the key is left free for other clients.
fn yield_for(config: &Config, limits: &SharingLimits, random: u64) -> Duration {
    let capabilities = &config.capabilities;
    if capabilities.queues { limits.pause } else { spread(capabilities.polls.yields(), random) }
}
