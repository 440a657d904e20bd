//! One key: the tasks that acquire it, and what the backend and the holders say.

mod claims;
mod holds;
mod waiters;

use super::claim::{AcquireRequest, HandOff, LAST_ANSWER, PendingClaim, Phase, Spare};
use super::hold::{End, HoldId, Tenure};
use super::sharing::{IdleLease, Leases};
use super::{AcquireFailure, Action, ClaimReport, Config, Env, FailureReason, Grant, KeyRequest, TaskStep};
use crate::request::FromReply;
use crate::{
    ClaimReply, Expiry, Foreign, Holder, HolderId, Holding, Mode, Moment, Occupant, Occupied, Reply, TokenBlock,
    Unknown,
};
use std::panic::Location;
use std::time::Duration;

pub use holds::DowngradeNext;
pub use waiters::WaiterId;
use waiters::Waiters;
use waiters::{Waiter, WaiterState};

/// The number of fencing tokens that the first claim of a task lease requests, and the maximum, reached if blocks are
/// used up: 0.1 s in microseconds. A single task requests one, unless its lease is kept for the next task: such a lease ends when
/// its tokens are used up.
const FIRST_BLOCK: u32 = 128;
const KEPT_BLOCK: u32 = 10_000;
const LARGEST_BLOCK: u32 = 100_000;
/// The interval at which a task in the queue of its client is told who holds the key.
const NEWS: Duration = Duration::from_secs(1);
/// The delay of the first report: the leader needs this time for the first reply of the backend.
const FIRST_NEWS: Duration = Duration::from_millis(10);

/// The state of one key in one mode in one client. `W` wakes a task, `L` is the driver's data for a lease.
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
            waiters: Waiters::default(),
            leases: Leases::new(),
            last_busy: None,
            silent_since: Moment::NEVER,
            block: 1,
            spares: Vec::new(),
            turns: None,
        }
    }
}

/// The timer, while it is set.
#[derive(Debug, Clone, Hash)]
struct Turns {
    at: Moment,
    /// The tasks that have not run since the last tick.
    suspects: Vec<WaiterId>,
    /// The last task that was reported.
    reported: Option<WaiterId>,
}

/// After so many ticks, a task that waits for its own client is reported.
const REPORT_AFTER: u32 = 5;

/// Tasks that acquire the key. A driver calls the engine for a task, and does what the returned [`TaskStep`] says.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether no task waits, claims or holds. An engine in this state may be dropped.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.leases.is_empty() && self.spares.is_empty()
    }

    /// A task arrives. Returns its id and its first step.
    pub fn enter(&mut self, request: &AcquireRequest, cx: &mut Env<'_, W, L>) -> (WaiterId, TaskStep) {
        let id = self.waiters.new_id();
        if !cx.open {
            return (id, TaskStep::Closed);
        }
        let (request, arrived, task, state) = (request.clone(), cx.now, W::default(), WaiterState::Queued);
        self.place(id, Waiter { request, arrived, task, state }, cx);
        (id, self.finish(id, None, cx))
    }

    /// The task runs. Returns its next step, unless it goes on waiting for what it waits for. A request in flight is dropped then, without
    /// another poll.
    pub fn woken(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        self.runs(id);
        let state = self.waiters.get(id).map(|waiter| &waiter.state);
        if state.is_none_or(|state| !cx.open && state.is_at_rest()) {
            self.leave(id, cx);
            return Some(TaskStep::Closed);
        }
        self.is_ready(id).then(|| {
            let step = self.go_on(id, cx);
            self.finish(id, step, cx)
        })
    }

    /// The moment of [`TaskStep::Rest`] has come.
    pub fn on_time(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> TaskStep {
        if let Some(step) = self.woken(id, cx) {
            return step;
        }
        let step = match self.waiters.get_mut(id) {
            Some(Waiter { state: WaiterState::Claiming(claiming), .. }) if claiming.phase == Phase::Delayed => {
                self.attempt(id, cx)
            }
            Some(Waiter { state: WaiterState::Claiming(_), .. }) => {
                cx.act(Action::FallbackPoll);
                self.wake_up(id, cx)
            }
            Some(waiter) if cx.now >= waiter.request.deadline(waiter.arrived) => {
                waiter.state = WaiterState::LastLook;
                Some(TaskStep::Send(KeyRequest::Inspect, cx.now + LAST_ANSWER))
            }
            _ => None,
        };
        self.finish(id, step, cx)
    }

    /// The request of [`TaskStep::Send`] was answered; [`Reply::Unknown`]: not within its limit.
    pub fn answered(&mut self, id: WaiterId, reply: Reply, cx: &mut Env<'_, W, L>) -> TaskStep {
        let step = match self.waiters.get_mut(id).map(|waiter| &mut waiter.state) {
            Some(WaiterState::LastLook) => Some(self.out_of_time(id, reply.try_into(), cx)),
            Some(WaiterState::Claiming(claiming)) => match std::mem::replace(&mut claiming.phase, Phase::Delayed) {
                Phase::Requesting(called, before) => {
                    self.claim_answered(id, (called, before), ClaimReply::from_reply(reply, 1), cx)
                }
                Phase::Inspecting => self.inspected(id, reply.try_into(), cx),
                Phase::Leaving(reason) => self.left(id, *reason, reply.try_into(), cx),
                Phase::Delayed | Phase::Sleeping(_) => None,
            },
            _ => None,
        };
        self.finish(id, step, cx)
    }

    /// The task gives up. What it has is passed on, or released in the background.
    pub fn leave(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) {
        self.take_out(id, cx);
    }

    /// A task waits for a lease of this client, or claims, in the order of arrival: also one that comes again, because it lost its lease
    /// before it ran, or has not run in its turn.
    fn place(&mut self, id: WaiterId, mut waiter: Waiter<W>, cx: &mut Env<'_, W, L>) {
        let request = &waiter.request;
        let in_queue = cx.config.is_in_queue(request) && self.has_queue_for(request);
        // The last reply may be outdated.
        self.last_busy.take_if(|_| in_queue && self.waiters.queue.is_empty());
        waiter.state = if in_queue { WaiterState::Queued } else { WaiterState::Called(None) };
        let keeps_idle = cx.config.sharing.is_some_and(|limits| !limits.idle_timeout.is_zero());
        let joined =
            request.mode == Mode::Shared || self.leases.any_task_hold().is_some() || !self.waiters.queue.is_empty();
        if in_queue && (keeps_idle || joined) {
            self.block = self.block.max(if keeps_idle { KEPT_BLOCK } else { FIRST_BLOCK });
        }
        self.waiters.add(id, waiter, in_queue);
        if let Some((hold, idle)) = self.leases.idle() {
            self.hand_over(hold, idle, cx);
        }
        self.admit(cx);
        self.call_next(None, cx);
    }

    /// Whether a task has something to do other than to wait.
    fn is_ready(&self, id: WaiterId) -> bool {
        match self.waiters.get(id).map(|waiter| &waiter.state) {
            Some(WaiterState::Called(_) | WaiterState::Served(_) | WaiterState::TurnLost) => true,
            Some(WaiterState::Claiming(claiming)) => claiming.is_woken(),
            Some(WaiterState::Queued | WaiterState::LastLook) | None => false,
        }
    }

    /// Does it. Without a step, the task waits for a lease of this client.
    fn go_on(&mut self, id: WaiterId, cx: &mut Env<'_, W, L>) -> Option<TaskStep> {
        if let Some(Grant { hold, tenure, .. }) = self.waiters.granted_to(id) {
            // A lease that has ended meanwhile is released here, because no task has it.
            self.status(hold, tenure, cx);
        }
        match &mut self.waiters.get_mut(id)?.state {
            WaiterState::Called(_) => return self.begin_claiming(id, cx),
            WaiterState::Claiming(claiming) => {
                claiming.attempt.as_mut()?.notified = false;
                return self.wake_up(id, cx);
            }
            _ => {}
        }
        let waiter = self.waiters.remove(id)?;
        match waiter.state {
            WaiterState::Served(Err(failure)) => return Some(TaskStep::Failed(failure)),
            WaiterState::Served(Ok(grant)) if self.leases.get(grant.hold).is_some() => {
                return Some(TaskStep::Granted(grant));
            }
            _ => self.place(id, waiter, cx),
        }
        None
    }

    /// Goes on until the task has to wait: the key may have been handed to it meanwhile.
    fn finish(&mut self, id: WaiterId, mut step: Option<TaskStep>, cx: &mut Env<'_, W, L>) -> TaskStep {
        loop {
            match step {
                Some(TaskStep::Granted(Grant { hold, tenure, .. })) if !cx.open => {
                    self.release(hold, tenure, true, cx);
                    return TaskStep::Closed;
                }
                Some(step @ (TaskStep::Granted(_) | TaskStep::Failed(_))) => return step,
                _ if !cx.open => {
                    self.leave(id, cx);
                    return TaskStep::Closed;
                }
                Some(step @ TaskStep::Send(..)) => return step,
                _ if self.is_ready(id) => step = self.go_on(id, cx),
                step => return step.unwrap_or_else(|| self.rest_in_queue(id, cx)),
            }
        }
    }

    /// The task waits for others of this client. If it is time, it is told who holds the key.
    fn rest_in_queue(&self, id: WaiterId, cx: &mut Env<'_, W, L>) -> TaskStep {
        let Some(Waiter { request, arrived, .. }) = self.waiters.get(id) else { return TaskStep::Closed };
        let mut until = request.deadline(*arrived);
        if request.reports {
            let view = self.view(id, cx.config, cx.now);
            until = until.min(cx.now + if view.is_some() { NEWS } else { FIRST_NEWS });
            if let Some((ahead, occupied)) = view {
                cx.act(Action::Report(Box::new(ClaimReport::Queued { ahead, occupied })));
            }
        }
        TaskStep::Rest(until)
    }

    /// The wait of a queued task is over, and the key was inspected once more to report its holder.
    fn out_of_time(
        &mut self,
        id: WaiterId,
        seen: Result<Option<Holding>, Unknown>,
        cx: &mut Env<'_, W, L>,
    ) -> TaskStep {
        let known = self.view(id, cx.config, cx.now).map(|(_, occupied)| occupied);
        let reason = match (seen, known) {
            (Err(cause), None) => FailureReason::Unreachable(cause),
            (seen, known) => FailureReason::Busy(seen.ok().flatten().map(Occupied::from).or(known)),
        };
        let waited = self.take_out(id, cx).map_or(Duration::ZERO, |waiter| cx.now.since(waiter.arrived));
        TaskStep::Failed(Box::new(AcquireFailure { reason, waited, attempts: 1 }))
    }

    /// The driver's data that wakes the task, while it is in the engine.
    pub fn task_mut(&mut self, id: WaiterId) -> Option<&mut W> {
        self.waiters.get_mut(id).map(|waiter| &mut waiter.task)
    }

    /// An idle lease for a task that does not wait in the queue, if it matches the request. One that does not, also because these tasks use
    /// another mode, is released, because it counts as a free key.
    pub fn take_idle(&mut self, request: &AcquireRequest, cx: &mut Env<'_, W, L>) -> IdleLease {
        if !cx.open || request.queues() {
            return IdleLease::None;
        }
        if request.shares()
            && self.waiters.queue.is_empty()
            && let Some(grant) = self.leases.join(request, cx)
        {
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
        self.call_next(None, cx);
        IdleLease::Release(release)
    }

    /// The number of waiting tasks of this client.
    pub fn waiting(&self) -> usize {
        self.waiters.queue.len() + self.waiters.claimants_waiting()
    }

    /// The number of waiters before a queued task, `None` if the backend has no queue; and the known holder of the key. No request is sent
    /// for this.
    fn view(&self, id: WaiterId, config: &Config, now: Moment) -> Option<(Option<u32>, Occupied)> {
        let before = u32::try_from(self.waiters.queue.before(id)).unwrap_or(u32::MAX);
        // The backend knows all holders of permits.
        let is_complete = self.last_busy.is_none() || !self.leases.has_shared_permits();
        if let Some(occupied) = self.leases.occupied(now).filter(|_| is_complete) {
            return Some((config.capabilities.queues.then_some(before), occupied));
        }
        let (ahead, occupied) = self.last_busy.as_deref()?;
        Some((ahead.map(|ahead| ahead.saturating_add(before)), occupied.clone()))
    }

    /// The client is not open any more: wakes all tasks, which then find that out, and releases the lease that is kept for the next
    /// task, if there is one.
    pub fn close(&mut self, cx: &mut Env<'_, W, L>) {
        for waiter in self.waiters.all_mut() {
            cx.out.push(Action::Wake(std::mem::take(&mut waiter.task)));
        }
        self.waiters.forget_lost();
        if let Some((id, _)) = self.leases.idle() {
            self.leases.end_unused(id, true, cx);
            self.call_next(None, cx);
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
        cx: &mut Env<'_, W, L>,
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
    pub fn on_changed(&mut self, cx: &mut Env<'_, W, L>) {
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
    pub fn on_queued(&mut self, cx: &mut Env<'_, W, L>) {
        self.leases.on_queued(cx);
        self.call_next(None, cx);
    }

    /// Events may have been missed: every task claims again, and every hold is renewed after `after`. A hand-off that no task has
    /// taken yet may have expired, so it is confirmed by a poll.
    pub fn on_reset(&mut self, after: Duration, cx: &mut Env<'_, W, L>) {
        for waiter in self.waiters.all_mut() {
            if let Some(pending) = waiter.state.claim_mut() {
                pending.hand_off = None;
            }
            if waiter.request.retry.is_none() {
                let _claims = waiter.notify(cx);
            }
        }
        // A task that takes over one of these claims polls at once.
        for spare in &mut self.spares {
            spare.claim.polled_at = Moment::default();
        }
        self.leases.expedite(after, cx);
    }
}

/// The task lease and the queue.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Passes a task lease after `from` to the first queued task, if it waits for one and the lease may be passed on.
    fn hand_over(&mut self, id: HoldId, from: Tenure, cx: &mut Env<'_, W, L>) -> bool {
        let next = self.waiters.front().filter(|(_, waiter)| waiter.is_queued());
        let Some((next, waiter)) = next else { return false };
        let Some(grant) = self.leases.hand_over(id, from, &waiter.request, cx) else { return false };
        self.grow_block(id);
        self.waiters.serve(next, Ok(grant), cx);
        true
    }

    /// The next claim requests more tokens if those of this task lease are used up.
    fn grow_block(&mut self, id: HoldId) {
        if self.leases.is_used_up(id) {
            self.block = self.block.saturating_mul(8).min(LARGEST_BLOCK);
        }
    }

    /// Passes a task lease to the next task, or keeps it idle for a moment.
    fn pass_on(&mut self, id: HoldId, from: Tenure, cx: &mut Env<'_, W, L>) -> bool {
        if self.waiters.front().is_some_and(|(_, waiter)| waiter.request.has_permits()) {
            return self.hand_over_permits(id, from, cx);
        }
        let passed = self.hand_over(id, from, cx)
            || self.waiters.first_waiter().is_none() && self.leases.keep_idle(id, from, cx);
        if passed {
            self.call_next(None, cx);
        }
        passed
    }

    fn leader_claims(&self) -> bool {
        self.waiters.front().is_some_and(|(_, waiter)| !waiter.is_queued())
    }

    /// Makes the first queued task claim, if no lease of this client can serve it: there is none, it does not match, or this
    /// tenure uses its last token. The task then enters the queue of the server before that lease is released, unless
    /// the key must be left free after it.
    fn call_next(&mut self, mut pending: Option<Box<PendingClaim>>, cx: &mut Env<'_, W, L>) {
        // An idle lease that does not match a waiting task.
        if let Some((hold, _)) = self.leases.idle()
            && self.waiters.first_waiter().is_some()
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
                self.waiters.call(id, claim, cx);
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
    fn first_in_queue(&self) -> Occupied {
        let Some((_, Waiter { request, .. })) = self.waiters.front() else {
            return Occupied::new(Occupant::Foreign(Foreign::other("no answer yet")), Expiry::Never);
        };
        // Its holder id is unknown until it is granted.
        let holder = Holder { id: HolderId::from_bytes([0; 16]), owner: request.owner.clone() };
        Occupied::new(Occupant::Holder(holder), Expiry::In(request.ttl.get()))
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
    fn admit(&mut self, cx: &mut Env<'_, W, L>) {
        while let Some((next, waiter)) = self.waiters.front()
            && waiter.is_queued()
            && let Some(grant) = self.leases.join(&waiter.request, cx)
        {
            self.grow_block(grant.hold);
            self.waiters.serve(next, Ok(grant), cx);
        }
    }
}

/// The turns of tasks that do not run.
///
/// A task that claims, or that was granted a lease and has not taken it, keeps others from the key. If its future is neither polled
/// nor dropped, for example because a `select!` polls another branch, this could last forever. So while it may matter, a timer ticks.
/// A task that has not run between two ticks loses its turn, as if it had left. When it runs again, it takes its place in the order of
/// arrival again.
///
/// A task that waits for long, while one task of this client has the key, may wait for itself. It is reported once.
///
/// The first of the two ticks wakes the tasks that claim, so one that waits for a slow reply runs, and keeps its turn. A task that was
/// granted a lease was woken by the grant.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// A task runs.
    pub(super) fn runs(&mut self, id: WaiterId) {
        if let Some(turns) = &mut self.turns {
            turns.suspects.retain(|suspect| *suspect != id);
        }
    }

    /// Ends the timer of an engine that is empty. A driver calls this after each other call.
    pub fn tidy(&mut self, cx: &mut Env<'_, W, L>) {
        if self.turns.is_some() && self.is_empty() {
            self.set_turns(None, cx);
        }
    }

    /// Sets the timer, if a task may keep others from the key.
    pub(super) fn watch_turns(&mut self, cx: &mut Env<'_, W, L>) {
        if self.turns.is_none()
            && (self.waiters.may_block() || self.waits_for_own().is_some())
            && let Some(limit) = cx.config.turn_limit
        {
            self.set_turns(Some(Turns { at: cx.now + limit, suspects: Vec::new(), reported: None }), cx);
        }
    }

    /// The timer that was set to `fired` has fired.
    pub(super) fn turns_due(&mut self, fired: Moment, cx: &mut Env<'_, W, L>) {
        let Some(turns) = self.turns.take_if(|turns| turns.at == fired) else { return };
        for id in turns.suspects {
            // A lease that has ended meanwhile is released here, because no task has it.
            if let Some(Grant { hold, tenure, .. }) = self.waiters.granted_to(id) {
                self.status(hold, tenure, cx);
            }
            if self.waiters.blocks(id)
                && let Some(waiter) = self.take_out(id, cx).filter(|_| cx.open)
            {
                self.waiters.pass_over(id, waiter);
            }
        }
        let reported = self.report_own_wait(turns.reported, cx);
        let (suspects, tasks) = self.waiters.suspects();
        for task in tasks {
            cx.act(Action::Wake(task));
        }
        self.watch_turns(cx);
        if let Some(turns) = &mut self.turns {
            (turns.suspects, turns.reported) = (suspects, reported);
        }
    }

    /// Reports the first task that waits for its own client, unless it is the last that was reported. Returns that one.
    fn report_own_wait(&self, last: Option<WaiterId>, cx: &mut Env<'_, W, L>) -> Option<WaiterId> {
        let Some((id, since, place)) = self.waits_for_own().filter(|(id, ..)| Some(*id) != last) else { return last };
        let waited = cx.now.since(since);
        if cx.config.turn_limit.is_none_or(|limit| waited < limit * REPORT_AFTER) {
            return last;
        }
        cx.act(Action::WaitsForOwn { waited, place });
        Some(id)
    }

    /// The first task that waits while one task has the key exclusively, and since when it waits for that one.
    fn waits_for_own(&self) -> Option<(WaiterId, Moment, &'static Location<'static>)> {
        // First, because mostly nobody waits, and readers may be many.
        let (id, waiter) = self.waiters.first_waiter()?;
        let place = waiter.request.requested_at?;
        let held = self.leases.holds.iter().map(|hold| hold.tenure);
        let exclusive = held.filter(|tenure| tenure.mode == Mode::Exclusive && !tenure.idle);
        Some((id, waiter.arrived.max(exclusive.map(|tenure| tenure.since).max()?), place))
    }

    fn set_turns(&mut self, turns: Option<Turns>, cx: &mut Env<'_, W, L>) {
        let at = |turns: &Option<Box<Turns>>| turns.as_ref().map_or(Moment::NEVER, |turns| turns.at);
        let from = at(&self.turns);
        self.turns = turns.map(Box::new);
        cx.act(Action::SetTimer { hold: HoldId::TURNS, from, to: at(&self.turns) });
    }
}
