use super::Config;
use super::action::{Action, Grant, Step};
use super::answer::{IdleLease, View};
use super::boxed_vec::BoxedVec;
use super::claiming::{HandOff, PendingClaim, Phase, Spare};
use super::context::Context;
use super::leases::Leases;
use super::queue::Queue;
use super::request::AcquireRequest;
use super::tenure::{End, HoldId, Tenure};
use super::turns::Turns;
use super::waiter::{State, Waiter, WaiterId};
use crate::{Expiry, Holder, HolderId, Mode, Moment, Occupant, Occupied, TokenBlock};
use std::time::Duration;

/// The number of fencing tokens that the first claim of a shared lease requests, and the maximum, reached if blocks are
/// used up: 0.1 s in microseconds. A single task requests one, unless its lease is kept for the next task: such a lease ends when
/// its tokens are used up.
const FIRST_BLOCK: u32 = 128;
const KEPT_BLOCK: u32 = 10_000;
const LARGEST_BLOCK: u32 = 100_000;

/// The state of one key in one client. `W` wakes a task, `L` is the driver's data for a lease.
#[derive(Debug, Clone, Hash)]
pub struct KeyEngine<W, L> {
    pub(super) queue: Queue<W>,
    pub(super) leases: Leases<L>,
    /// The last reply to the leader: the number of waiters before it, and the holder.
    pub(super) last_busy: Option<Box<(Option<u32>, Occupied)>>,
    /// Since when the backend has not answered; [`Moment::NEVER`] if it has.
    pub(super) failing_since: Moment,
    /// The number of tokens that the next claim requests.
    pub(super) block: u32,
    /// Claims of permits that wait at the backend, but currently for no task.
    pub(super) spares: BoxedVec<Spare>,
    /// The timer for tasks that do not run; `None` if it is not set.
    pub(super) turns: Option<Box<Turns>>,
}

impl<W: Default, L: Default> Default for KeyEngine<W, L> {
    fn default() -> Self {
        Self {
            queue: Queue::new(),
            leases: Leases::new(),
            last_busy: None,
            failing_since: Moment::NEVER,
            block: 1,
            spares: BoxedVec::new(),
            turns: None,
        }
    }
}

/// Tasks that acquire the key.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether no task waits, claims or holds. An engine in this state may be dropped.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.leases.is_empty() && self.spares.is_empty()
    }

    /// Adds a task that arrived at `arrived`. A task whose granted lease was lost before it ran is `first` again.
    pub fn enter(
        &mut self,
        request: AcquireRequest,
        arrived: Moment,
        first: bool,
        cx: &mut Context<'_, W, L>,
    ) -> WaiterId {
        let in_line = cx.config.is_in_line(&request) && self.has_line_for(&request);
        // The last reply may be outdated.
        self.last_busy.take_if(|_| in_line && self.queue.line_is_empty());
        let state = if in_line { State::Queued } else { State::Called(None) };
        let keeps_idle = cx.config.sharing.is_some_and(|limits| !limits.idle_timeout.is_zero());
        let joined = request.mode == Mode::Shared || self.leases.any_shared().is_some() || !self.queue.line_is_empty();
        if in_line && (keeps_idle || joined) {
            self.block = self.block.max(if keeps_idle { KEPT_BLOCK } else { FIRST_BLOCK });
        }
        let id = self.queue.add(Waiter { request, arrived, task: W::default(), state }, in_line, first);
        if let Some((hold, idle)) = self.leases.idle() {
            self.hand_over(hold, idle, cx);
        }
        self.admit(cx);
        self.settle(None, cx);
        id
    }

    /// The next step of a task that is new or was woken; `None` if it keeps waiting.
    pub fn poll(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Step> {
        if !self.is_present(id) {
            return Some(Step::TurnLost);
        }
        if let Some(Grant { hold, tenure, .. }) = self.queue.granted_to(id) {
            // A lease that has ended meanwhile is released here, because no task has it.
            self.status(hold, tenure, cx);
        }
        if let Some(step) = self.queue.take_served(id) {
            return Some(step);
        }
        match &mut self.queue.get_mut(id)?.state {
            State::Called(_) => Some(self.begin_claiming(id, cx)),
            State::Claiming(claiming) if claiming.phase == Phase::Sleeping => {
                let notified = claiming.attempt.as_mut().is_some_and(|attempt| std::mem::take(&mut attempt.notified));
                notified.then(|| self.wake_up(id, cx))
            }
            State::Queued | State::Claiming(_) => None,
        }
    }

    /// Whether the task waits for other tasks of this client, so that [`KeyEngine::poll`] has no step for it.
    pub fn is_queued(&self, id: WaiterId) -> bool {
        self.queue.get(id).is_some_and(|waiter| matches!(waiter.state, State::Queued))
    }

    /// Sets the driver's data that wakes the task.
    pub fn set_task(&mut self, id: WaiterId, task: W) {
        if let Some(waiter) = self.queue.get_mut(id) {
            waiter.task = task;
        }
    }

    /// The driver's data that wakes the task.
    pub fn task(&self, id: WaiterId) -> Option<&W> {
        self.queue.get(id).map(|waiter| &waiter.task)
    }

    /// The timer of [`Step::Sleep`] has fired.
    pub fn timer_fired(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        match self.claiming(id).map(|claiming| &claiming.phase) {
            Some(Phase::Delayed) => self.attempt(id, cx),
            Some(Phase::Sleeping) => {
                cx.act(Action::FallbackPoll);
                self.wake_up(id, cx)
            }
            _ => Step::Wait,
        }
    }

    /// Removes a task that gives up. If the key was granted meanwhile, the caller must release it.
    pub fn leave(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Grant> {
        if let Some(step) = self.queue.take_served(id) {
            self.settle(None, cx);
            return match step {
                Step::Granted(grant) => Some(grant),
                _ => None,
            };
        }
        let pending = self.remove(id, cx);
        self.settle(pending, cx);
        None
    }

    /// An idle lease for a task outside the queue, if it matches the request. One that does not, also because these tasks use another
    /// mode, is released, because it counts as a free key.
    pub fn take_idle(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> IdleLease {
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
        self.queue.line_len() + self.queue.claimants_waiting()
    }

    /// The known holder of the key, for a queued task.
    pub fn view(&self, id: WaiterId, config: &Config, now: Moment) -> Option<View> {
        let before = u32::try_from(self.queue.before(id)).unwrap_or(u32::MAX);
        // The backend knows all holders of permits.
        let is_complete = self.last_busy.is_none() || self.leases.permits.is_empty();
        if let Some(occupied) = self.leases.occupied(now).filter(|_| is_complete) {
            return Some(View { ahead: config.capabilities.queues.then_some(before), occupied });
        }
        let (ahead, occupied) = self.last_busy.as_deref()?;
        Some(View { ahead: ahead.map(|ahead| ahead.saturating_add(before)), occupied: occupied.clone() })
    }

    /// Removes and returns the driver's data of all tasks, for a client that is being closed.
    pub fn wake_all(&mut self, cx: &mut Context<'_, W, L>) {
        for waiter in self.queue.all_mut() {
            cx.out.push(Action::Wake(std::mem::take(&mut waiter.task)));
        }
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
        let Some((pending, task)) = self.queue.claim_of(holder) else {
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
        for waiter in self.queue.all_mut().filter(|waiter| waiter.request.retry.is_none()) {
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
        for waiter in self.queue.all_mut() {
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

/// The shared lease and the queue.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Passes a shared lease after `from` to the first queued task, if it waits for one and the lease may be passed on.
    fn hand_over(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let next = self.queue.front().filter(|(_, waiter)| matches!(waiter.state, State::Queued));
        let Some((_, waiter)) = next else { return false };
        let Some(grant) = self.leases.hand_over(id, from, &waiter.request, cx) else { return false };
        self.grow_block(id);
        if let Some(task) = self.queue.serve_front(Step::Granted(grant)) {
            cx.act(Action::Wake(task));
        }
        true
    }

    /// The next claim requests more tokens if those of this shared lease are used up.
    pub(super) fn grow_block(&mut self, id: HoldId) {
        if self.leases.is_used_up(id) {
            self.block = self.block.saturating_mul(8).min(LARGEST_BLOCK);
        }
    }

    /// Passes a shared lease to the next task, or keeps it idle for a moment.
    pub(super) fn pass_on(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        if self.queue.front().is_some_and(|(_, waiter)| waiter.request.has_permits()) {
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
        !self.queue.line_is_empty() || self.queue.has_waiting_claimant()
    }

    /// Makes this queued task claim.
    pub(super) fn call(&mut self, id: WaiterId, claim: Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        if let Some(task) = self.queue.call(id, claim) {
            cx.act(Action::Wake(task));
        }
    }

    pub(super) fn leader_claims(&self) -> bool {
        self.queue.front().is_some_and(|(_, waiter)| !matches!(waiter.state, State::Queued))
    }

    /// Makes the first queued task claim, if no lease of this client can serve it: there is none, it does not match, or this
    /// tenure uses its last token. The task then enters the queue of the server before that lease is released, unless
    /// the key must be left free after it.
    pub(super) fn settle(&mut self, mut pending: Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        // An idle lease that does not match a waiting task.
        if let Some((hold, _)) = self.leases.idle()
            && self.has_waiters()
        {
            // It may have ended before its timer fired.
            self.leases.stop_sharing(hold, false, cx);
            self.leases.give_back(hold, true, cx);
        }
        match self.queue.front() {
            Some((_, waiter)) if waiter.request.has_permits() => self.call_for_permits(&mut pending, cx),
            Some((id, waiter))
                if matches!(waiter.state, State::Queued) && !self.leases.is_worth_waiting(&waiter.request, cx) =>
            {
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
    pub(super) fn first_in_line(&self) -> Option<Occupied> {
        let (_, waiter) = self.queue.front()?;
        // Its holder id is unknown until it is granted.
        let holder = Holder { id: HolderId::from_bytes([0; 16]), owner: waiter.request.owner.clone() };
        Some(Occupied::new(Occupant::Holder(holder), Expiry::In(waiter.request.ttl.get())))
    }
}
