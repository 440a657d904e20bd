use super::Config;
use super::action::{Action, Grant, Step};
use super::answer::{IdleLease, View};
use super::claiming::{HandOff, PendingClaim, Phase};
use super::context::Context;
use super::leases::Leases;
use super::queue::Queue;
use super::request::AcquireRequest;
use super::tenure::{End, Tenure};
use super::waiter::{State, Waiter, WaiterId};
use crate::{Expiry, Holder, HolderId, Mode, Moment, Occupant, Occupied, TokenBlock};
use std::time::Duration;

/// Fencing tokens asked for where a lease may be shared, and where more are used up, at most: a tenth of a second of
/// microseconds. A task that is alone asks for one.
const FIRST_BLOCK: u32 = 128;
const LARGEST_BLOCK: u32 = 100_000;

/// All that one client knows and wants of one key. `W` is what the driver needs to wake a task, `L` what it attaches to a
/// lease.
#[derive(Debug, Clone, Hash)]
pub struct KeyEngine<W, L> {
    pub(super) queue: Queue<W>,
    pub(super) leases: Leases<L>,
    /// What the leader was told last: how many wait before it, and who has the key.
    pub(super) heard: Option<Box<(Option<u32>, Occupied)>>,
    pub(super) failing_since: Option<Moment>,
    /// How many tokens the next claim asks for.
    pub(super) block: u32,
}

impl<W: Default, L: Default> Default for KeyEngine<W, L> {
    fn default() -> Self {
        Self { queue: Queue::new(), leases: Leases::new(), heard: None, failing_since: None, block: 1 }
    }
}

/// Tasks that want the key.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether nobody waits, claims or holds. Nothing is lost with an engine in this state.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.leases.is_empty()
    }

    /// A task wants the key, since `arrived`. One that got a lease that was lost on the way is `first` again.
    pub fn enter(
        &mut self,
        request: AcquireRequest,
        arrived: Moment,
        first: bool,
        cx: &mut Context<'_, W, L>,
    ) -> WaiterId {
        let in_line = cx.config.is_in_line(&request);
        let state = if in_line { State::Queued } else { State::Called(None) };
        if in_line && (self.leases.shared().is_some() || !self.queue.line_is_empty()) {
            self.block = self.block.max(FIRST_BLOCK);
        }
        let id = self.queue.add(Waiter { request, arrived, task: W::default(), state }, in_line, first);
        if let Some((_, idle)) = self.leases.idle() {
            self.hand_over(idle, cx);
        }
        self.settle(None, cx);
        id
    }

    /// What the task is to do now; `None` if it waits on. It has been woken, or asks for the first time.
    pub fn poll(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Step> {
        if let Some(Grant { hold, tenure, .. }) = self.queue.granted_to(id) {
            // A lease that is over by now is released here: no task has it.
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

    /// Whether the task waits for others of this client, so that [`KeyEngine::poll`] has nothing for it.
    pub fn is_queued(&self, id: WaiterId) -> bool {
        self.queue.get(id).is_some_and(|waiter| matches!(waiter.state, State::Queued))
    }

    /// What wakes the task from now on.
    pub fn set_task(&mut self, id: WaiterId, task: W) {
        if let Some(waiter) = self.queue.get_mut(id) {
            waiter.task = task;
        }
    }

    /// What wakes the task.
    pub fn task(&self, id: WaiterId) -> Option<&W> {
        self.queue.get(id).map(|waiter| &waiter.task)
    }

    /// The moment of [`Step::Sleep`] has come.
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

    /// The task does not want the key any more. If it was granted meanwhile, its holder must release it.
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

    /// For a task that does not wait in line: an idle lease, if it suits.
    pub fn take_idle(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> IdleLease {
        let Some((hold, idle)) = self.leases.idle() else { return IdleLease::None };
        if request.shares()
            && let Some(grant) = self.leases.hand_over(idle, request, cx)
        {
            return IdleLease::Taken(grant);
        }
        let Some(release) = self.leases.pending_release(hold, cx) else { return IdleLease::None };
        self.leases.end(hold, End::Released, cx);
        self.settle(None, cx);
        IdleLease::Release(release)
    }

    /// How many tasks of this client wait.
    pub fn waiting(&self) -> usize {
        self.queue.line_len() + self.queue.claimants_waiting()
    }

    /// Who has the key, for a task in line, as far as it is known here.
    pub fn view(&self, id: WaiterId, config: &Config, now: Moment) -> Option<View> {
        let before = u32::try_from(self.queue.before(id)).unwrap_or(u32::MAX);
        if let Some(occupied) = self.leases.occupied(now) {
            return Some(View { ahead: config.capabilities.queues.then_some(before), occupied });
        }
        let (ahead, occupied) = self.heard.as_deref()?;
        Some(View { ahead: ahead.map(|ahead| ahead.saturating_add(before)), occupied: occupied.clone() })
    }

    /// Takes what wakes each task, for a client that is being closed.
    pub fn wake_all(&mut self, cx: &mut Context<'_, W, L>) {
        for waiter in self.queue.all_mut() {
            cx.out.push(Action::Wake(std::mem::take(&mut waiter.task)));
        }
    }
}

/// Events of the place.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The key was handed to a holder of this client. Says whether it waits here.
    pub fn on_hand_off(
        &mut self,
        holder: HolderId,
        tokens: TokenBlock,
        claim_ttl: Duration,
        cx: &mut Context<'_, W, L>,
    ) -> bool {
        let Some((pending, task)) = self.queue.claim_of(holder) else { return false };
        pending.hand_off = Some(HandOff { tokens, claim_ttl });
        pending.notified = true;
        cx.act(Action::Wake(std::mem::take(task)));
        true
    }

    /// The key was freed, or is another holder's: one task asks for it alone, the others are served when it is done. Where no
    /// queue lets in those that fit, all tasks ask that may hold the key together.
    pub fn on_changed(&mut self, cx: &mut Context<'_, W, L>) {
        let (queues, mut asked) = (cx.config.capabilities.queues, false);
        for waiter in self.queue.all_mut().filter(|waiter| waiter.request.retry.is_none()) {
            let together = !queues && waiter.request.mode != Mode::Exclusive;
            if !asked || together {
                asked |= waiter.notify(cx);
            }
        }
        self.leases.expedite(Duration::ZERO, cx);
    }

    /// Events may have been missed: every task asks, and every hold is renewed after `after`.
    pub fn on_reset(&mut self, after: Duration, cx: &mut Context<'_, W, L>) {
        for waiter in self.queue.all_mut().filter(|waiter| waiter.request.retry.is_none()) {
            let _claims = waiter.notify(cx);
        }
        self.leases.expedite(after, cx);
    }
}

/// The lease and the line.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The first task in line gets the shared lease after `from`, if it waits for it and the lease may be passed on.
    fn hand_over(&mut self, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let next = self.queue.front().filter(|(_, waiter)| matches!(waiter.state, State::Queued));
        let Some((_, waiter)) = next else { return false };
        let Some(grant) = self.leases.hand_over(from, &waiter.request, cx) else { return false };
        if self.leases.is_used_up() {
            self.block = self.block.saturating_mul(8).min(LARGEST_BLOCK);
        }
        if let Some(task) = self.queue.serve_front(Step::Granted(grant)) {
            cx.act(Action::Wake(task));
        }
        true
    }

    /// Leaves the shared lease to the next task, or keeps it for a moment.
    pub(super) fn pass_on(&mut self, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let passed = self.hand_over(from, cx) || self.queue.line_is_empty() && self.leases.keep_idle(from, cx);
        if passed {
            self.settle(None, cx);
        }
        passed
    }

    pub(super) fn leader_claims(&self) -> bool {
        self.queue.front().is_some_and(|(_, waiter)| !matches!(waiter.state, State::Queued))
    }

    /// Calls the first task in line to claim, if there is nothing to wait for here: no lease, or one that does not suit, or
    /// one that this tenure uses up. So it has its place at the server before that lease is released; unless the key must be
    /// left free then.
    pub(super) fn settle(&mut self, mut pending: Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        // A lease that nobody has, and that those who wait cannot get.
        if !self.queue.line_is_empty()
            && let Some((hold, _)) = self.leases.idle()
        {
            self.leases.give_back(hold, true, cx);
        }
        let leases = &self.leases;
        if let Some(waiter) = self.queue.front_mut()
            && matches!(waiter.state, State::Queued)
            && !leases.is_worth_waiting(&waiter.request, cx)
        {
            let claim = |pending: &mut Box<PendingClaim>| {
                waiter.request.matches(pending.claim.ttl, &pending.claim.holder.owner)
            };
            waiter.state = State::Called(pending.take_if(claim));
            cx.act(Action::Wake(std::mem::take(&mut waiter.task)));
        }
        // Nobody goes on from there.
        if let Some(pending) = pending {
            cx.act(Action::ClaimEnded);
            cx.act(Action::Release(Box::new(pending.release(cx.now))));
        }
    }

    /// Who comes first here, for one who does not wait in line.
    pub(super) fn first_in_line(&self) -> Option<Occupied> {
        let (_, waiter) = self.queue.front()?;
        // Its id is not known before it is granted.
        let holder = Holder { id: HolderId::from_bytes([0; 16]), owner: waiter.request.owner.clone() };
        Some(Occupied::new(Occupant::Holder(holder), Expiry::In(waiter.request.ttl.get())))
    }
}

impl<W: Default> Waiter<W> {
    fn pending(&mut self) -> Option<&mut PendingClaim> {
        match &mut self.state {
            State::Queued => None,
            State::Called(pending) => pending.as_deref_mut(),
            State::Claiming(claiming) => claiming.attempt.as_mut(),
        }
    }

    /// It is worth asking again. Says whether it claims.
    fn notify<L>(&mut self, cx: &mut Context<'_, W, L>) -> bool {
        let Some(pending) = self.pending() else { return false };
        pending.notified = true;
        cx.act(Action::Wake(std::mem::take(&mut self.task)));
        true
    }
}
