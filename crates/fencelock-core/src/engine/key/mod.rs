//! One key: the tasks that acquire it, and what the backend and the holders say.

mod claims;
mod turns;
mod waiters;

use super::claim::{AcquireRequest, HandOff, PendingClaim, Phase, Spare};
use super::hold::{Duty, End, Firing, HoldId, Leaving, Status, Tenure};
use super::sharing::{IdleLease, Leases, OtherWaiters, Renewed};
use super::{Action, Config, Context, Grant, Source, TaskStep};
use crate::{
    Downgrade, Expiry, Holder, HolderId, Lease, LossReason, Mode, Moment, Occupant, Occupied, Renew, Renewal,
    TokenBlock, Unknown,
};
use std::time::Duration;

use turns::Turns;
pub use waiters::WaiterId;
use waiters::Waiters;
use waiters::{Waiter, WaiterState};

/// The number of fencing tokens that the first claim of a task lease requests, and the maximum, reached if blocks are
/// used up: 0.1 s in microseconds. A single task requests one, unless its lease is kept for the next task: such a lease ends when
/// its tokens are used up.
const FIRST_BLOCK: u32 = 128;
const KEPT_BLOCK: u32 = 10_000;
const LARGEST_BLOCK: u32 = 100_000;

/// The state of one key in one client. `W` wakes a task, `L` is the driver's data for a lease.
#[derive(Debug, Clone, Hash)]
pub struct KeyEngine<W, L> {
    waiters: Waiters<W>,
    leases: Leases<L>,
    /// The last reply to the leader: the number of waiters before it, and the holder.
    last_busy: Option<Box<(Option<u32>, Occupied)>>,
    /// When the backend answered last, if it does not answer the claims of the queue; otherwise [`Moment::NEVER`].
    silent_since: Moment,
    /// The number of tokens that the next claim requests.
    block: u32,
    /// Claims of permits that wait at the backend, but currently for no task.
    spares: Vec<Spare>,
    /// The timer for tasks that do not run; `None` if it is not set.
    turns: Option<Box<Turns>>,
}

impl<W: Default, L: Default> Default for KeyEngine<W, L> {
    fn default() -> Self {
        Self {
            waiters: Waiters::new(),
            leases: Leases::new(),
            last_busy: None,
            silent_since: Moment::NEVER,
            block: 1,
            spares: Vec::new(),
            turns: None,
        }
    }
}

/// The known holder of the key. No request is sent for this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// The number of waiters before; `None` if the backend has no queue.
    pub(crate) ahead: Option<u32>,
    /// The holder.
    pub(crate) occupied: Occupied,
}

/// Tasks that acquire the key.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether no task waits, claims or holds. An engine in this state may be dropped.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.leases.is_empty() && self.spares.is_empty()
    }

    /// Adds a task that arrived at `arrived`. A task whose granted lease was lost before it ran is `first` again.
    pub(crate) fn enter(
        &mut self,
        request: AcquireRequest,
        arrived: Moment,
        first: bool,
        cx: &mut Context<'_, W, L>,
    ) -> WaiterId {
        let in_queue = cx.config.is_in_queue(&request) && self.has_queue_for(&request);
        // The last reply may be outdated.
        self.last_busy.take_if(|_| in_queue && self.waiters.queue_is_empty());
        let state = if in_queue { WaiterState::Queued } else { WaiterState::Called(None) };
        let keeps_idle = cx.config.sharing.is_some_and(|limits| !limits.idle_timeout.is_zero());
        let joined =
            request.mode == Mode::Shared || self.leases.any_task_hold().is_some() || !self.waiters.queue_is_empty();
        if in_queue && (keeps_idle || joined) {
            self.block = self.block.max(if keeps_idle { KEPT_BLOCK } else { FIRST_BLOCK });
        }
        let id = self.waiters.add(Waiter { request, arrived, task: W::default(), state }, in_queue, first);
        if let Some((hold, idle)) = self.leases.idle() {
            self.hand_over(hold, idle, cx);
        }
        self.admit(cx);
        self.settle(None, cx);
        id
    }

    /// The next step of a task that is new or was woken; `None` if it keeps waiting.
    pub(crate) fn poll(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<TaskStep> {
        if !self.is_present(id) {
            return Some(TaskStep::TurnLost);
        }
        if let Some(Grant { hold, tenure, .. }) = self.waiters.granted_to(id) {
            // A lease that has ended meanwhile is released here, because no task has it.
            self.status(hold, tenure, cx);
        }
        if let Some(step) = self.waiters.take_served(id) {
            return Some(step);
        }
        match &mut self.waiters.get_mut(id)?.state {
            WaiterState::Called(_) => Some(self.begin_claiming(id, cx)),
            WaiterState::Claiming(claiming) if claiming.phase == Phase::Sleeping => {
                let notified = claiming.attempt.as_mut().is_some_and(|attempt| std::mem::take(&mut attempt.notified));
                notified.then(|| self.wake_up(id, cx))
            }
            WaiterState::Queued | WaiterState::Claiming(_) => None,
        }
    }

    /// Sets the driver's data that wakes the task.
    pub fn set_task(&mut self, id: WaiterId, task: W) {
        if let Some(waiter) = self.waiters.get_mut(id) {
            waiter.task = task;
        }
    }

    /// The driver's data that wakes the task.
    pub fn task(&self, id: WaiterId) -> Option<&W> {
        self.waiters.get(id).map(|waiter| &waiter.task)
    }

    /// The timer of [`TaskStep::Sleep`] has fired.
    pub(crate) fn timer_fired(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> TaskStep {
        match self.claiming(id).map(|claiming| &claiming.phase) {
            Some(Phase::Delayed) => self.attempt(id, cx),
            Some(Phase::Sleeping) => {
                cx.act(Action::FallbackPoll);
                self.wake_up(id, cx)
            }
            _ => TaskStep::Wait,
        }
    }

    /// Removes a task that gives up. If the key was granted meanwhile, the caller must release it.
    pub(crate) fn leave(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Grant> {
        if let Some(step) = self.waiters.take_served(id) {
            self.settle(None, cx);
            return match step {
                TaskStep::Granted(grant) => Some(grant),
                _ => None,
            };
        }
        let pending = self.remove(id, cx);
        self.settle(pending, cx);
        None
    }

    /// An idle lease for a task outside the queue, if it matches the request. One that does not, also because these tasks use another
    /// mode, is released, because it counts as a free key.
    pub(crate) fn take_idle(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> IdleLease {
        if let Some(grant) = self.join_now(request, cx) {
            return IdleLease::Taken(grant);
        }
        let Some((hold, idle)) = self.leases.idle() else { return IdleLease::None };
        if request.shares()
            && request.mode == idle.mode
            && let Some(grant) = self.leases.hand_over(hold, idle, request, cx)
        {
            return IdleLease::Taken(grant);
        }
        let Some(release) = self.leases.pending_release(hold, cx) else { return IdleLease::None };
        self.leases.stop_sharing(hold, false, cx);
        self.leases.end(hold, End::Released, cx);
        self.settle(None, cx);
        IdleLease::Release(release)
    }

    /// The number of waiting tasks of this client.
    pub fn waiting(&self) -> usize {
        self.waiters.queue_len() + self.waiters.claimants_waiting()
    }

    /// The known holder of the key, for a queued task.
    pub(crate) fn view(&self, id: WaiterId, config: &Config, now: Moment) -> Option<View> {
        let before = u32::try_from(self.waiters.before(id)).unwrap_or(u32::MAX);
        // The backend knows all holders of permits.
        let is_complete = self.last_busy.is_none() || self.leases.permits.is_empty();
        if let Some(occupied) = self.leases.occupied(now).filter(|_| is_complete) {
            return Some(View { ahead: config.capabilities.queues.then_some(before), occupied });
        }
        let (ahead, occupied) = self.last_busy.as_deref()?;
        Some(View { ahead: ahead.map(|ahead| ahead.saturating_add(before)), occupied: occupied.clone() })
    }

    /// The client is not open any more: wakes all tasks, which then find that out, and releases the lease that is kept for the next
    /// task, if there is one.
    pub fn close(&mut self, cx: &mut Context<'_, W, L>) {
        for waiter in self.waiters.all_mut() {
            cx.out.push(Action::Wake(std::mem::take(&mut waiter.task)));
        }
        if let Some((id, _)) = self.leases.idle() {
            self.leases.end_unused(id, true, cx);
            self.settle(None, cx);
        }
        self.leases.forget_history(cx);
    }
}

/// Events of the backend.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The key was handed to a holder of this client. Returns whether that holder waits here.
    pub fn on_hand_off(
        &mut self,
        holder: HolderId,
        tokens: TokenBlock,
        claim_ttl: Duration,
        cx: &mut Context<'_, W, L>,
    ) -> bool {
        let hand_off = HandOff { tokens, claim_ttl };
        let Some((pending, task)) = self.waiters.claim_of(holder) else {
            return self.spare_granted(holder, hand_off, cx);
        };
        pending.hand_off = Some(hand_off);
        pending.notified = true;
        cx.act(Action::Wake(std::mem::take(task)));
        true
    }

    /// The key was freed, or has another holder: one task claims, and the others follow when it is done. A backend
    /// without a queue grants to all claims that fit, so all tasks that may hold the key together claim.
    pub fn on_changed(&mut self, cx: &mut Context<'_, W, L>) {
        let (queues, mut notified) = (cx.config.capabilities.queues, false);
        for waiter in self.waiters.all_mut().filter(|waiter| waiter.request.retry.is_none()) {
            let together = !queues && waiter.request.mode != Mode::Exclusive;
            if !notified || together {
                notified |= waiter.notify(cx);
            }
        }
        self.leases.hinted(cx);
    }

    /// The holder of the lease that is kept for the next task.
    pub fn idle_holder(&self) -> Option<HolderId> {
        self.leases.idle().and_then(|(id, _)| self.leases.get(id)).map(|hold| hold.holder)
    }

    /// Another client waits for the key: a lease that is kept for the next task is released.
    pub fn on_queued(&mut self, cx: &mut Context<'_, W, L>) {
        self.leases.on_queued(cx);
        self.settle(None, cx);
    }

    /// Events may have been missed: every task claims again, and every hold is renewed after `after`. A hand-off that no task has
    /// taken yet may have expired, so it is confirmed by a poll.
    pub fn on_reset(&mut self, after: Duration, cx: &mut Context<'_, W, L>) {
        for waiter in self.waiters.all_mut() {
            if let Some(pending) = waiter.state.claim_mut() {
                pending.hand_off = None;
            }
            if waiter.request.retry.is_none() {
                let _claims = waiter.notify(cx);
            }
        }
        self.poll_spares();
        self.leases.expedite(after, cx);
    }
}

/// The task lease and the queue.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Passes a task lease after `from` to the first queued task, if it waits for one and the lease may be passed on.
    fn hand_over(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let next = self.waiters.front().filter(|(_, waiter)| waiter.is_queued());
        let Some((_, waiter)) = next else { return false };
        let Some(grant) = self.leases.hand_over(id, from, &waiter.request, cx) else { return false };
        self.grow_block(id);
        if let Some(task) = self.waiters.serve_front(TaskStep::Granted(grant)) {
            cx.act(Action::Wake(task));
        }
        true
    }

    /// The next claim requests more tokens if those of this task lease are used up.
    fn grow_block(&mut self, id: HoldId) {
        if self.leases.is_used_up(id) {
            self.block = self.block.saturating_mul(8).min(LARGEST_BLOCK);
        }
    }

    /// Passes a task lease to the next task, or keeps it idle for a moment.
    fn pass_on(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        if self.waiters.front().is_some_and(|(_, waiter)| waiter.request.has_permits()) {
            return self.hand_over_permits(id, from, cx);
        }
        let passed = self.hand_over(id, from, cx) || !self.has_waiters() && self.leases.keep_idle(id, from, cx);
        if passed {
            self.settle(None, cx);
        }
        passed
    }

    /// Whether a task of this client waits for a release of the key.
    fn has_waiters(&self) -> bool {
        !self.waiters.queue_is_empty() || self.waiters.has_waiting_claimant()
    }

    /// Makes this queued task claim.
    fn call(&mut self, id: WaiterId, claim: Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        if let Some(task) = self.waiters.call(id, claim) {
            cx.act(Action::Wake(task));
        }
    }

    fn leader_claims(&self) -> bool {
        self.waiters.front().is_some_and(|(_, waiter)| !waiter.is_queued())
    }

    /// Makes the first queued task claim, if no lease of this client can serve it: there is none, it does not match, or this
    /// tenure uses its last token. The task then enters the queue of the server before that lease is released, unless
    /// the key must be left free after it.
    fn settle(&mut self, mut pending: Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        // An idle lease that does not match a waiting task.
        if let Some((hold, _)) = self.leases.idle()
            && self.has_waiters()
        {
            // It may have ended before its timer fired.
            self.leases.stop_sharing(hold, false, cx);
            self.leases.end_unused(hold, true, cx);
        }
        match self.waiters.front() {
            Some((_, waiter)) if waiter.request.has_permits() => self.call_for_permits(&mut pending, cx),
            Some((id, waiter)) if waiter.is_queued() && !self.leases.is_worth_waiting(&waiter.request, cx) => {
                let (ttl, owner) = (waiter.request.ttl, &waiter.request.owner);
                let mut fits =
                    |pending: &mut Box<PendingClaim>| pending.claim.ttl == ttl && pending.claim.holder.owner == *owner;
                let claim = pending.take_if(&mut fits);
                self.call(id, claim, cx);
            }
            _ => {}
        }
        // No task takes the claim over.
        if let Some(pending) = pending {
            cx.act(Action::ClaimEnded(pending.claim.mode));
            cx.act(Action::Release(Box::new(pending.release(cx.now))));
        }
        self.release_spares(cx);
        self.watch_turns(cx);
    }

    /// The first queued task, as reported to a task outside the queue.
    fn first_in_queue(&self) -> Option<Occupied> {
        let (_, waiter) = self.waiters.front()?;
        // Its holder id is unknown until it is granted.
        let holder = Holder { id: HolderId::from_bytes([0; 16]), owner: waiter.request.owner.clone() };
        Some(Occupied::new(Occupant::Holder(holder), Expiry::In(waiter.request.ttl.get())))
    }
}

/// Holds: calls of their holders, and replies of the backend.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The state of this tenure. A lease that has ended stays ended.
    pub fn status(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Status {
        let Some(hold) = self.leases.get(id) else { return Status::Over };
        if !hold.is_current(tenure) {
            return Status::PassedOn;
        }
        match hold.lapse(cx.now) {
            None => Status::Held(hold.until()),
            Some(reason) => {
                self.lose(id, reason, cx);
                Status::Over
            }
        }
    }

    /// The driver's data for the lease of a hold.
    pub fn lease_mut(&mut self, id: HoldId) -> Option<&mut L> {
        self.leases.get_mut(id).map(|hold| &mut hold.lease)
    }

    /// The holder id, its TTL, and until when a claim of that holder may still be in flight.
    pub fn facts(&self, id: HoldId) -> Option<(HolderId, crate::Ttl, Moment)> {
        self.leases.get(id).map(|hold| (hold.holder, hold.ttl(), hold.stray_until))
    }

    /// The time until the lease expires if no renewal succeeds.
    pub fn rest(&self, id: HoldId, now: Moment) -> Option<Duration> {
        self.leases.get(id).map(|hold| hold.rest(now))
    }

    /// The holder of this tenure no longer needs the lease. If a release is due, it is one of the actions with `background`;
    /// otherwise the caller sends it.
    pub fn release(&mut self, id: HoldId, tenure: Tenure, background: bool, cx: &mut Context<'_, W, L>) -> Leaving {
        match self.status(id, tenure, cx) {
            Status::Held(_) => {}
            Status::PassedOn => return Leaving::PassedOn,
            Status::Over => return Leaving::Over,
        }
        if self.leases.leave(id, tenure) {
            return Leaving::PassedOn;
        }
        let rest = self.leases.get(id).map_or(Duration::ZERO, |hold| hold.rest(cx.now));
        if self.leases.is_sharing(id) {
            if tenure.mode != Mode::Shared && self.pass_on(id, tenure, cx) {
                return Leaving::PassedOn;
            }
            let queued = self.leader_claims();
            self.leases.stop_sharing(id, queued, cx);
        }
        self.leases.end_unused(id, background, cx);
        self.settle(None, cx);
        Leaving::Release(cx.now + rest)
    }

    /// Detaches the hold from this client: it is no longer renewed.
    pub fn detach(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Status {
        let status = self.status(id, tenure, cx);
        if matches!(status, Status::Held(_)) && !self.leave_to_another_process(id, tenure, cx) {
            self.leases.end(id, End::Released, cx);
            self.settle(None, cx);
        }
        status
    }

    /// Ends the hold of this tenure `max_hold` from now, even if its lease could be renewed. For a caller that acquired
    /// several keys, and whose work starts only now.
    pub fn limit_hold(&mut self, id: HoldId, tenure: Tenure, max_hold: Duration, cx: &mut Context<'_, W, L>) {
        if matches!(self.status(id, tenure, cx), Status::Held(_))
            && let Some(hold) = self.leases.get_mut(id)
        {
            hold.limit(cx.now + max_hold);
            hold.set_timer(cx);
        }
    }

    /// Resumes an existing hold by the proof of its holder: a claim of that holder id was granted. `None` if its lease is over already.
    pub fn resume(
        &mut self,
        holder: HolderId,
        request: &AcquireRequest,
        tokens: TokenBlock,
        lease: Lease,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Grant> {
        if lease.lapsed(cx.now) {
            return None;
        }
        let (hold, tenure) = self.leases.begin(holder, request, tokens, lease, Moment::default(), cx);
        Some(Grant { hold, tenure, source: Source::Resumed })
    }

    /// The timer of a hold has fired; or timers of other holds have, and this one would fire soon.
    pub fn hold_due(&mut self, id: HoldId, firing: Firing, cx: &mut Context<'_, W, L>) -> Duty {
        if id == HoldId::NONE {
            self.leases.history_due(firing.at, firing.not_before, cx);
            return Duty::Nothing;
        }
        if id == HoldId::TURNS {
            self.turns_due(firing.at, cx);
            return Duty::Nothing;
        }
        let duty = self.leases.due(id, firing, cx).unwrap_or_else(|reason| {
            self.lose(id, reason, cx);
            Duty::Nothing
        });
        // This may set the timer, so it comes after the lease has recorded that its timer fired.
        self.release_spares(cx);
        duty
    }

    /// The reply to a renewal that was sent at `sent`. `announced`: whether the backend announces the next waiter.
    pub fn renewal_answered(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        announced: bool,
        cx: &mut Context<'_, W, L>,
    ) {
        match self.leases.renewed(id, sent, answer, cx) {
            Some(Renewed::Lost(reason)) => self.lose(id, reason, cx),
            Some(Renewed::Waiters(Some(waiters))) if self.leases.shares_permits(id) => {
                self.on_permit_waiters(waiters, announced, cx);
            }
            // If a leader is already claiming, it may be the reported waiter; then the lease is no longer passed on.
            Some(Renewed::Waiters(Some(others))) if self.leases.is_sharing(id) && !self.leader_claims() => {
                self.leases.on_waiters(OtherWaiters { others, announced }, cx);
                self.settle(None, cx);
            }
            Some(Renewed::Waiters(_)) | None => {}
        }
        // The renewal has moved the timer.
        self.release_spares(cx);
    }

    fn lose(&mut self, id: HoldId, reason: LossReason, cx: &mut Context<'_, W, L>) {
        if reason == LossReason::MaxHold && self.leases.idle().is_some_and(|(idle, _)| idle == id) {
            self.leases.stop_sharing(id, false, cx);
            self.leases.end_unused(id, true, cx);
            return self.settle(None, cx);
        }
        // A task that received the lease and has not run since cannot release it.
        let taken = self.leases.get(id).is_some_and(|hold| {
            let (one, mut others) = hold.tenures();
            !self.waiters.is_granted(id, one) || others.any(|tenure| !self.waiters.is_granted(id, tenure))
        });
        self.leases.lose(id, reason, taken, cx);
        self.settle(None, cx);
    }
}

/// Tasks of one client that read the same key at the same time share one hold.
///
/// The readers of a key have another engine than its writers, so all tasks in the queue request a shared lock. Unlike
/// writers, readers have the lease at the same time. A reader may join while the server reports no other waiter, or
/// within the batch for tasks of this client. After that, the first reader in the queue claims for itself, behind the
/// waiters at the server.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Admits the readers at the front of the queue, as long as they may join the task lease.
    fn admit(&mut self, cx: &mut Context<'_, W, L>) {
        while let Some((_, waiter)) = self.waiters.front()
            && waiter.is_queued()
            && let Some(grant) = self.leases.join(&waiter.request, cx)
        {
            self.grow_block(grant.hold);
            if let Some(task) = self.waiters.serve_front(TaskStep::Granted(grant)) {
                cx.act(Action::Wake(task));
            }
        }
    }

    /// Joins the task lease without waiting, unless readers are in the queue.
    fn join_now(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> Option<Grant> {
        if !request.shares() || !self.waiters.queue_is_empty() {
            return None;
        }
        self.leases.join(request, cx)
    }

    /// A reader transfers its holder id to another process, which may release the hold at any time. Tasks that share
    /// the hold would not notice that in time, so they lose it now.
    fn leave_to_another_process(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        if !self.leases.leave(id, tenure) {
            return false;
        }
        if let Some(hold) = self.leases.get(id) {
            let holder = Holder { id: hold.holder, owner: hold.owner.clone() };
            self.leases.lose(id, LossReason::TakenBy(Occupant::Holder(holder).into()), true, cx);
        }
        self.settle(None, cx);
        true
    }
}

/// What follows the answer to a downgrade.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DowngradeNext {
    /// Send it again at this moment.
    Rest(Moment),
    /// It is a reader, with the token of this tenure.
    Done(Tenure),
    /// The backend refuses permanently.
    Refused(Unknown),
    /// The hold is over.
    Over,
}

/// Downgrades: a writer becomes a reader.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The tenure of the writer ends, and no other task gets the lease. Returns the tenure that reads, and the request, which is repeated
    /// until it is answered, or the hold is over. It may be executed although its reply is lost, so the hold counts as shared from now
    /// on; it has the token of the writer until the answer. `None` if the tenure has ended already, or is not exclusive.
    pub fn downgrade(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Option<(Tenure, Renewal)> {
        let is_over = !matches!(self.status(id, tenure, cx), Status::Held(_));
        if is_over || tenure.mode != Mode::Exclusive {
            return None;
        }
        if self.leases.is_sharing(id) {
            let queued = self.leader_claims();
            self.leases.stop_sharing(id, queued, cx);
        }
        let hold = self.leases.get_mut(id)?;
        let begun = (hold.begin_downgrade(cx.now), Renewal::new(cx.key.clone(), hold.holder, hold.ttl()));
        self.settle(None, cx);
        Some(begun)
    }

    /// The reply to a downgrade that was sent at `sent`, for the tenure that began with it.
    pub fn downgrade_answered(
        &mut self,
        id: HoldId,
        tenure: Tenure,
        sent: Moment,
        answer: Result<Downgrade, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> DowngradeNext {
        // A lease that has expired ended by itself, whatever the reply is.
        if !matches!(self.status(id, tenure, cx), Status::Held(_)) {
            return DowngradeNext::Over;
        }
        let random = cx.rng.next_u64();
        let Some(hold) = self.leases.get_mut(id) else { return DowngradeNext::Over };
        let lost = match answer {
            Ok(Downgrade::Downgraded { token }) => {
                match hold.downgraded(token, sent, cx.config.drift, cx.now, random) {
                    Ok(tenure) => {
                        hold.set_timer(cx);
                        return DowngradeNext::Done(tenure);
                    }
                    Err(reason) => reason,
                }
            }
            Ok(Downgrade::Absent) => LossReason::Deleted,
            Ok(Downgrade::TakenBy(holders)) => LossReason::TakenBy(holders),
            Err(cause) if cause.is_permanent() => return DowngradeNext::Refused(cause),
            // Like a renewal that is not confirmed.
            Err(_) => {
                let pause = (hold.ttl().get() / 60).clamp(Duration::from_millis(1), Duration::from_secs(1));
                return DowngradeNext::Rest(cx.now + pause);
            }
        };
        self.lose(id, lost, cx);
        DowngradeNext::Over
    }
}
