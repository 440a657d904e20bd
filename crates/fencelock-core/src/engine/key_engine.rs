use super::action::{Action, Context, Ended, Grant, RefusalReason, Report, Source, Step};
use super::claiming::{Claiming, HASTY_ATTEMPTS, HandOff, PendingClaim, Phase};
use super::hold::{Beginning, Duty, End, Hold, HoldId, Tenure};
use super::queue::{Queue, State, Waiter, WaiterId};
use super::release_queue::PendingRelease;
use super::request::AcquireRequest;
use super::rng::spread;
use super::shared_lease::{LeaseHistory, SharedLease};
use super::{Config, SharingLimits};
use crate::{
    Acquire, Expiry, Fault, Holder, HolderId, Holding, Intent, Lease, LossReason, Moment, Occupant, Occupied,
    PlaceInLine, Release, Renew, RenewalPlan, TokenBlock, Unknown,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// A hold that has lasted this long is renewed for the first time: a hand-off gets its full lease, and the server is
/// asked to tell of changes. Shorter holds, the common ones, cost nothing of it.
const FIRST_RENEWAL: Duration = Duration::from_millis(25);
/// Where a shared lease was released because others may wait without a queue, they get this long to notice: they are
/// woken, which takes a trip or two.
const YIELD_BLIND: Duration = Duration::from_millis(4);
/// Fencing tokens asked for where a lease may be shared, and where more are used up, at most: a tenth of a second of
/// microseconds. A task that is alone asks for one.
const FIRST_BLOCK: u32 = 128;
const LARGEST_BLOCK: u32 = 100_000;

/// All that one client knows and wants of one key. `W` is what the driver needs to wake a task, `L` what it attaches to a
/// lease.
#[derive(Debug, Clone, Hash)]
pub struct KeyEngine<W, L> {
    queue: Queue<W>,
    /// The lease that is passed from task to task.
    shared: Option<SharedLease>,
    holds: Vec<Hold<L>>,
    /// What the leader was told last: how many wait before it, and who has the key.
    heard: Option<Box<(Option<u32>, Occupied)>>,
    failing_since: Option<Moment>,
    /// What the last shared lease has left.
    history: LeaseHistory,
    /// Until then no task in line claims: the key is left to clients that only poll.
    yield_until: Moment,
    /// How many tokens the next claim asks for.
    block: u32,
    last_hold: u64,
}

/// What the holder of a tenure may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has the key until then, if no renewal succeeds.
    Held(Moment),
    /// It has passed the lease on, or has released it.
    PassedOn,
    /// The hold is over: [`Action::Ended`] has told how.
    Over,
}

/// What becomes of a lease that its holder does not need any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Another task has it now, or it is kept for the next one. Nothing is to be released.
    PassedOn,
    /// It is to be released at the place.
    Release,
    /// It was over before.
    Over,
}

/// What became of a lease that lingered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleLease {
    /// There is none.
    None,
    /// The caller has it.
    Taken(Grant),
    /// It does not suit, and must be released: this holder, which may have claims under way until then.
    Release(HolderId, Moment),
}

/// Who has the key, as far as it is known without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// How many wait before; `None` where the place has no queue.
    pub ahead: Option<u32>,
    /// Who has it.
    pub occupied: Occupied,
}

impl<W: Default, L: Default> Default for KeyEngine<W, L> {
    fn default() -> Self {
        Self {
            queue: Queue::new(),
            shared: None,
            holds: Vec::new(),
            heard: None,
            failing_since: None,
            history: LeaseHistory::default(),
            yield_until: Moment::default(),
            block: 1,
            last_hold: 0,
        }
    }
}

/// Tasks that want the key.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Whether nobody waits, claims or holds. Nothing is lost with an engine in this state.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.holds.is_empty()
    }

    /// A task wants the key, since `arrived`. One that got a lease that was lost on the way is `first` again.
    pub fn enter(
        &mut self,
        request: AcquireRequest,
        arrived: Moment,
        first: bool,
        cx: &mut Context<'_, W, L>,
    ) -> WaiterId {
        let in_line = cx.config.sharing.is_some() && request.queues();
        let state = if in_line { State::Queued } else { State::Called(None) };
        if in_line && (self.shared.is_some() || !self.queue.line_is_empty()) {
            self.block = self.block.max(FIRST_BLOCK);
        }
        let id = self.queue.add(Waiter { request, arrived, task: W::default(), state }, in_line, first);
        if let Some(idle) = self.idle_tenure() {
            self.hand_over(idle, cx);
        }
        self.settle(None, cx);
        id
    }

    /// What the task is to do now; `None` if it waits on. It has been woken, or asks for the first time.
    pub fn poll(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Step> {
        if let Some(step) = self.queue.take_served(id) {
            return Some(step);
        }
        match &mut self.queue.get_mut(id)?.state {
            State::Queued => None,
            State::Called(_) => Some(self.begin_claiming(id, cx)),
            State::Claiming(claiming) if claiming.phase == Phase::Sleeping => {
                let notified = claiming.attempt.as_mut().is_some_and(|attempt| std::mem::take(&mut attempt.notified));
                notified.then(|| self.wake_up(id, cx))
            }
            State::Claiming(_) => None,
        }
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
        match self.claiming(id).map(|claiming| claiming.phase.clone()) {
            Some(Phase::Delayed) => self.attempt(id, cx),
            Some(Phase::Sleeping) => {
                cx.act(Action::FallbackPoll);
                self.wake_up(id, cx)
            }
            _ => Step::Wait,
        }
    }

    /// The claim of [`Step::Claim`] is about to be sent.
    pub fn claim_sent(&mut self, id: WaiterId) {
        if let Some(claiming) = self.claiming(id) {
            claiming.sent();
        }
    }

    /// The answer to a claim that was sent at `sent`; the time of connecting is no part of a lease. An error without
    /// [`KeyEngine::claim_sent`] is one of connecting.
    pub fn claim_answered(
        &mut self,
        id: WaiterId,
        sent: Moment,
        answer: Result<Acquire, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        let was_sent = claiming.in_flight;
        claiming.in_flight = false;
        let cause = match answer {
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
                return self.ask_later(id, cx);
            }
            Ok(Acquire::Queued { ahead, last_fence, server_micros, occupied }) => {
                if let Some(attempt) = &mut claiming.attempt {
                    attempt.answered = Some(PlaceInLine { sent, last_fence, server_micros });
                    attempt.claim.intent = Intent::Poll;
                }
                self.on_busy(id, Some(ahead), occupied, cx);
                return self.ask_later(id, cx);
            }
            Err(cause) => cause,
        };
        claiming.unanswered(&cause, was_sent, cx.now);
        if cause.not_replicated().is_some() || cause.is_permanent() {
            return self.leave_then(id, RefusalReason::Unconfirmed(cause), cx);
        }
        // It may have been carried out. A poll can tell, without a second place in the queue.
        let left_behind = claiming.left_behind;
        if let Some(attempt) = claiming.attempt.as_mut().filter(|attempt| attempt.claim.intent == Intent::Enqueue)
            && left_behind
        {
            attempt.claim.intent = Intent::Poll;
        }
        match self.on_trouble(id, cause, cx) {
            Ok(()) => self.ask_later(id, cx),
            Err(reason) => self.refuse(id, reason, cx),
        }
    }

    /// The answer to [`Step::Inspect`].
    pub fn inspected(
        &mut self,
        id: WaiterId,
        answer: Result<Option<Holding>, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Step {
        match answer {
            Ok(seen) => {
                let first = self.first_in_line().unwrap_or_else(unknown_occupant);
                self.on_busy(id, None, seen.map_or(first, Occupied::from), cx);
            }
            Err(cause) => {
                if let Err(reason) = self.on_trouble(id, cause, cx) {
                    return self.refuse(id, reason, cx);
                }
            }
        }
        self.ask_later(id, cx)
    }

    /// The answer to [`Step::Leave`].
    pub fn left(&mut self, id: WaiterId, answer: Result<Release, Unknown>, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        // A server that does not allow it now will not do so later.
        claiming.left_behind = answer.is_err_and(|cause| !cause.is_permanent());
        match std::mem::replace(&mut claiming.phase, Phase::Asking) {
            Phase::Leaving(reason) => self.refuse(id, *reason, cx),
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

    /// For a task that does not wait in line: a lease that lingers, if it suits.
    pub fn take_idle(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> IdleLease {
        let Some(idle) = self.idle_tenure() else { return IdleLease::None };
        let waiter = Waiter { request: request.clone(), arrived: cx.now, task: W::default(), state: State::Queued };
        let id = self.queue.add(waiter, true, true);
        self.hand_over(idle, cx);
        if let Some(Step::Granted(grant)) = self.queue.take_served(id) {
            return IdleLease::Taken(grant);
        }
        self.queue.remove(id);
        let Some(shared) = self.shared.take() else { return IdleLease::None };
        let Some(hold) = self.hold(shared.hold) else { return IdleLease::None };
        let (holder, stray_until) = (hold.holder, hold.stray_until);
        self.end(shared.hold, End::Released, cx);
        self.settle(None, cx);
        IdleLease::Release(holder, stray_until)
    }

    /// How many tasks of this client wait.
    pub fn waiting(&self, config: &Config) -> usize {
        if config.sharing.is_some() { self.queue.line_len() } else { self.queue.claimants_waiting() }
    }

    /// Who has the key, for a task in line, as far as it is known here.
    pub fn view(&self, id: WaiterId, config: &Config, now: Moment) -> Option<View> {
        let before = u32::try_from(self.queue.before(id)).unwrap_or(u32::MAX);
        if let Some(hold) = self.shared.as_ref().and_then(|shared| self.hold(shared.hold)) {
            let by = Occupant::Holder(Holder { id: hold.holder, owner: hold.owner.clone() });
            let rest = hold.rest(now);
            let expiry = if rest == Duration::MAX { Expiry::Never } else { Expiry::In(rest) };
            let occupied = Occupied::new(by, expiry).with_held_for(Some(now.since(hold.tenure.since)));
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

    /// The key was freed, or is another holder's: one task asks, the others are served when it is done.
    pub fn on_changed(&mut self, cx: &mut Context<'_, W, L>) {
        let _asked = self.queue.all_mut().filter(|waiter| waiter.request.retry.is_none()).any(|one| one.notify(cx));
        self.expedite_all(Duration::ZERO, cx);
    }

    /// Events may have been missed: every task asks, and every hold is renewed after `after`.
    pub fn on_reset(&mut self, after: Duration, cx: &mut Context<'_, W, L>) {
        for waiter in self.queue.all_mut().filter(|waiter| waiter.request.retry.is_none()) {
            let _claims = waiter.notify(cx);
        }
        self.expedite_all(after, cx);
    }

    fn expedite_all(&mut self, after: Duration, cx: &mut Context<'_, W, L>) {
        for hold in &mut self.holds {
            hold.expedite(cx.now, after);
            set_timer(hold, cx);
        }
    }
}

/// Holds.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// What the holder of this tenure may believe. A lease that is found over stays so.
    pub fn status(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Status {
        let Some(hold) = self.hold(id) else { return Status::Over };
        if hold.tenure.number != tenure.number {
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

    /// What the driver has attached to the lease of a hold.
    pub fn lease_mut(&mut self, id: HoldId) -> Option<&mut L> {
        self.hold_mut(id).map(|hold| &mut hold.lease)
    }

    /// Who has the hold, for how long it was asked, and until when a claim of that holder may still be on its way.
    pub fn facts(&self, id: HoldId) -> Option<(HolderId, crate::Ttl, Moment)> {
        self.hold(id).map(|hold| (hold.holder, hold.ttl, hold.stray_until))
    }

    /// How long the lease runs on if no renewal succeeds.
    pub fn rest(&self, id: HoldId, now: Moment) -> Option<Duration> {
        self.hold(id).map(|hold| hold.rest(now))
    }

    /// The holder of this tenure does not need the lease any more. With `background` the release that may be due is one of the
    /// actions; otherwise the caller sends it.
    pub fn release(
        &mut self,
        id: HoldId,
        tenure: Tenure,
        background: bool,
        cx: &mut Context<'_, W, L>,
    ) -> Leaving {
        match self.status(id, tenure, cx) {
            Status::Held(_) => {}
            Status::PassedOn => return Leaving::PassedOn,
            Status::Over => return Leaving::Over,
        }
        if self.is_shared(id) {
            if self.pass_on(id, tenure, cx) {
                return Leaving::PassedOn;
            }
            self.stop_sharing(cx);
        }
        self.give_back(id, background, cx);
        self.settle(None, cx);
        Leaving::Release
    }

    /// The hold goes on without this client: nothing renews it any more.
    pub fn detach(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Status {
        let status = self.status(id, tenure, cx);
        if matches!(status, Status::Held(_)) {
            if self.is_shared(id) {
                self.shared = None;
            }
            self.end(id, End::Released, cx);
            self.settle(None, cx);
        }
        status
    }

    /// A hold that was there before, by the proof of its holder.
    pub fn resume(
        &mut self,
        holder: HolderId,
        request: &AcquireRequest,
        tokens: TokenBlock,
        lease: Lease,
        cx: &mut Context<'_, W, L>,
    ) -> Grant {
        let (hold, tenure) = self.begin_hold(holder, request, tokens, lease, Moment::default(), cx);
        Grant { hold, tenure, source: Source::Resumed }
    }

    /// The timer of a hold has fired, which stood at `fired`; or those of others have, and this one would within `ahead`. A timer
    /// that is set again fires no earlier than `not_before`.
    pub fn hold_due(
        &mut self,
        id: HoldId,
        fired: Moment,
        ahead: Duration,
        not_before: Moment,
        cx: &mut Context<'_, W, L>,
    ) -> Duty {
        let (key, now) = (cx.key, cx.now);
        let Some(hold) = self.hold_mut(id).filter(|hold| hold.timer == fired) else { return Duty::Nothing };
        hold.timer = Moment::NEVER;
        if let Some(reason) = hold.lapse(now) {
            self.lose(id, reason, cx);
            return Duty::Nothing;
        }
        let duty = hold.duty(key, now, ahead);
        if matches!(duty, Duty::Nothing)
            && let Some(next) = hold.next_timer(now)
        {
            hold.timer = if ahead.is_zero() { next.max(not_before) } else { fired };
            cx.act(Action::SetTimer { hold: id, from: Moment::NEVER, to: hold.timer });
        }
        duty
    }

    /// The answer to a renewal that was sent at `sent`.
    pub fn renewal_answered(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) {
        let (now, random) = (cx.now, cx.rng.next_u64());
        let Some(hold) = self.hold_mut(id) else { return };
        // A lease that has run out by now ended by itself, whatever became of the key.
        let lost = match (hold.lapse(now), answer) {
            (Some(reason), _) => Err(reason),
            (None, Ok(Renew::Renewed { waiters })) => hold.renewed(sent, now, random).map(|()| Some(waiters)),
            (None, Ok(Renew::Absent)) => Err(LossReason::Deleted),
            (None, Ok(Renew::TakenBy(occupant))) => Err(LossReason::TakenBy(occupant)),
            (None, Err(_)) => {
                hold.not_renewed(now, random);
                Ok(None)
            }
        };
        match lost {
            Err(reason) => self.lose(id, reason, cx),
            Ok(waiters) => {
                set_timer(hold, cx);
                if let Some(waiters) = waiters.filter(|_| self.is_shared(id)) {
                    self.on_waiters(waiters, cx);
                }
            }
        }
    }

    /// The time for which a lease lingers is over: it is released unless it was taken meanwhile.
    pub fn linger_over(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) {
        let same = self.hold(id).is_some_and(|hold| hold.tenure.number == tenure.number);
        if same && self.is_shared(id) {
            self.shared = None;
            self.give_back(id, true, cx);
            self.settle(None, cx);
        }
    }
}

/// Claims of one task.
impl<W: Default, L: Default> KeyEngine<W, L> {
    fn claiming(&mut self, id: WaiterId) -> Option<&mut Claiming> {
        match &mut self.queue.get_mut(id)?.state {
            State::Claiming(claiming) => Some(claiming),
            State::Queued | State::Called(_) => None,
        }
    }

    fn begin_claiming(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let in_line = self.queue.is_in_line(id);
        let (failing_since, yield_until) = (self.failing_since, self.yield_until);
        let Some(waiter) = self.queue.get_mut(id) else { return Step::Wait };
        let failing_since = failing_since.filter(|_| in_line).map(|since| since.max(waiter.arrived));
        let mut claiming = Claiming::new(&waiter.request, waiter.arrived, failing_since);
        if let State::Called(Some(pending)) = std::mem::replace(&mut waiter.state, State::Queued) {
            claiming.resume(*pending);
        }
        let until = if in_line { yield_until.min(claiming.deadline) } else { Moment::default() };
        waiter.state = State::Claiming(Box::new(claiming));
        if cx.now < until {
            return Step::Sleep { until, wakes: false };
        }
        self.attempt(id, cx)
    }

    fn attempt(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        if claiming.attempt.is_some() {
            // It goes on from where another task has given up, which may have been handed the key meanwhile.
            return self.hand_off(id, cx).unwrap_or_else(|| self.ask(id, cx));
        }
        let holder = match cx.rng.holder_id() {
            Ok(holder) => holder,
            Err(invalid) => return self.refuse(id, RefusalReason::Invalid(invalid), cx),
        };
        if let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) {
            claiming.begin(cx.key, request, holder);
            cx.act(Action::ClaimBegan);
        }
        self.ask(id, cx)
    }

    fn next_attempt(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        claiming.phase = Phase::Delayed;
        if claiming.out_of_queue > HASTY_ATTEMPTS {
            return Step::Sleep { until: cx.now + Duration::from_millis(10), wakes: false };
        }
        self.attempt(id, cx)
    }

    fn ask(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let block = self.queue.is_in_line(id).then(|| NonZeroU32::new(self.block)).flatten();
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) else {
            return Step::Wait;
        };
        let Some(claim) = claiming.ask(block) else { return Step::Wait };
        // A task that does not wait in line does not come before those that do, also where only this client knows of them.
        let last = !request.queues() && cx.config.sharing.is_some();
        if last && !self.queue.line_is_empty() { Step::Inspect } else { Step::Claim(Box::new(claim)) }
    }

    /// Sleeps before the next claim, unless the wait is over.
    fn ask_later(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) else {
            return Step::Wait;
        };
        if claiming.is_over(request, cx.now) {
            let busy = RefusalReason::Busy(claiming.occupied.clone());
            if self.has_successor(id, cx.config) {
                return self.refuse(id, busy, cx);
            }
            return self.leave_then(id, busy, cx);
        }
        let until = cx.now + claiming.pause(request, cx.config, cx.now, cx.rng);
        claiming.phase = Phase::Sleeping;
        Step::Sleep { until, wakes: request.retry.is_none() }
    }

    fn wake_up(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Step {
        if cx.config.capabilities.fresh_holders {
            // A rollback of this claim may still be under way; it must not find the next one under the same holder.
            self.end_attempt(id, cx);
            return self.next_attempt(id, cx);
        }
        self.hand_off(id, cx).unwrap_or_else(|| self.ask(id, cx))
    }

    /// Begins at once on a hand-off message, if it is to be believed. The first renewal makes it a full lease.
    fn hand_off(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Step> {
        let (config, now) = (cx.config, cx.now);
        let (tokens, lease) = self.claiming(id)?.attempt.as_mut()?.believe(config, now)?;
        self.grant(id, tokens, lease, Source::HandedOff, cx)
    }

    fn granted(&mut self, id: WaiterId, sent: Moment, tokens: TokenBlock, cx: &mut Context<'_, W, L>) -> Step {
        let Some(attempt) = self.claiming(id).and_then(|claiming| claiming.attempt.as_mut()) else { return Step::Wait };
        let tokens = attempt.whole(tokens);
        let lease = if cx.config.capabilities.expires {
            Lease::granted(sent, attempt.claim.ttl.get(), cx.config.drift)
        } else {
            Lease::endless()
        };
        if let Some(step) = self.grant(id, tokens, lease, Source::Claimed, cx) {
            return step;
        }
        let cause = Unknown::new(
            cx.config.place.clone(),
            Fault::Timeout,
            "the lock was granted, but the lease was over when the answer came",
        );
        if let Some(claiming) = self.claiming(id) {
            claiming.transferable = false;
        }
        match self.on_trouble(id, cause, cx) {
            Ok(()) => {
                self.end_attempt(id, cx);
                self.next_attempt(id, cx)
            }
            Err(reason) => self.refuse(id, reason, cx),
        }
    }

    /// `None` if the lease is over already.
    fn grant(
        &mut self,
        id: WaiterId,
        tokens: TokenBlock,
        lease: Lease,
        source: Source,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Step> {
        if lease.lapsed(cx.now) {
            cx.act(Action::GrantedTooLate);
            return None;
        }
        let in_line = self.queue.is_in_line(id);
        let Waiter { request, state: State::Claiming(claiming), .. } = self.queue.remove(id)? else { return None };
        let PendingClaim { claim, stray_until, .. } = claiming.attempt?;
        cx.act(Action::ClaimEnded);
        let (hold, tenure) = self.begin_hold(claim.holder.id, &request, tokens, lease, stray_until, cx);
        if in_line && let Some(limits) = &cx.config.sharing {
            (self.heard, self.failing_since) = (None, None);
            let history = std::mem::take(&mut self.history);
            let alive = self.hold(hold).is_some_and(|hold| hold.lapse(cx.now).is_none());
            let share = || SharedLease::new(hold, tokens, cx.now, history, cx.config, limits);
            self.shared = alive.then(share);
        }
        self.settle(None, cx);
        Some(Step::Granted(Grant { hold, tenure, source }))
    }

    fn on_busy(&mut self, id: WaiterId, ahead: Option<u32>, occupied: Occupied, cx: &mut Context<'_, W, L>) {
        let in_line = self.queue.is_in_line(id);
        let Some(claiming) = self.claiming(id) else { return };
        let again = claiming.on_busy(occupied.clone());
        if in_line {
            self.heard = Some(Box::new((ahead, occupied.clone())));
            self.failing_since = None;
        }
        cx.act(Action::Report(Report::Busy { ahead, occupied, again }));
    }

    fn on_trouble(&mut self, id: WaiterId, cause: Unknown, cx: &mut Context<'_, W, L>) -> Result<(), RefusalReason> {
        let in_line = self.queue.is_in_line(id);
        let Some(Waiter { request, state: State::Claiming(claiming), .. }) = self.queue.get_mut(id) else {
            return Ok(());
        };
        let outcome = claiming.on_trouble(request, cause, cx.now);
        let quarantined = claiming.in_quarantine();
        if in_line {
            let since = claiming.failing_since.filter(|_| !quarantined);
            self.failing_since = since.map(|since| self.failing_since.unwrap_or(since));
        }
        cx.act(Action::Report(Report::Trouble(outcome?)));
        Ok(())
    }

    /// Releases what the attempt may have left, waits for the answer, and tells the task this.
    fn leave_then(&mut self, id: WaiterId, reason: RefusalReason, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        claiming.transferable = false;
        match claiming.holder().filter(|_| claiming.left_behind) {
            Some(holder) => {
                claiming.phase = Phase::Leaving(Box::new(reason));
                Step::Leave(holder)
            }
            None => self.refuse(id, reason, cx),
        }
    }

    fn refuse(&mut self, id: WaiterId, reason: RefusalReason, cx: &mut Context<'_, W, L>) -> Step {
        let Some(claiming) = self.claiming(id) else { return Step::Wait };
        let refusal = Box::new(claiming.refusal(reason, cx.now));
        if self.queue.is_in_line(id) {
            self.fail_others(id, &refusal, cx);
        }
        let pending = self.remove(id, cx);
        self.settle(pending, cx);
        Step::Refused(refusal)
    }

    /// The leader gives up because the place does not answer. So do all that would have given up by themselves.
    fn fail_others(&mut self, leader: WaiterId, refusal: &super::Refusal, cx: &mut Context<'_, W, L>) {
        let permanent = match &refusal.reason {
            RefusalReason::Busy(_) => return,
            RefusalReason::Unconfirmed(cause) if cause.not_replicated().is_some() => return,
            RefusalReason::Unreachable(cause) | RefusalReason::Unconfirmed(cause) => cause.is_permanent(),
            RefusalReason::Invalid(_) => true,
        };
        let since = self.failing_since.unwrap_or(cx.now);
        let gives_up = |waiter: &Waiter<W>| {
            permanent || cx.now.since(since.max(waiter.arrived)) >= waiter.request.ttl.get()
        };
        let others = self.queue.line().filter(|(id, waiter)| {
            *id != leader && matches!(waiter.state, State::Queued) && gives_up(waiter)
        });
        let others: Vec<_> = others.map(|(id, _)| id).collect();
        for id in others {
            if let Some(task) = self.queue.serve(id, Step::Refused(Box::new(refusal.clone()))) {
                cx.act(Action::Wake(task));
            }
        }
    }

    /// Takes a task out. What the next one may go on from comes back; anything else that it has left is released.
    fn remove(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) -> Option<Box<PendingClaim>> {
        let successor = self.has_successor(id, cx.config);
        let in_line = self.queue.is_in_line(id);
        match self.queue.remove(id)?.state {
            State::Queued => None,
            State::Called(pending) => pending,
            State::Claiming(mut claiming) => {
                if in_line {
                    // What it heard may not be so any more when the next one asks.
                    self.heard = None;
                }
                if successor && let Some(pending) = claiming.transfer(cx.now) {
                    return Some(Box::new(pending));
                }
                if claiming.attempt.is_some() {
                    cx.act(Action::ClaimEnded);
                }
                if let Some(release) = claiming.end_attempt(cx.now) {
                    cx.act(Action::Release(release));
                }
                None
            }
        }
    }

    fn end_attempt(&mut self, id: WaiterId, cx: &mut Context<'_, W, L>) {
        let now = cx.now;
        let Some(claiming) = self.claiming(id).filter(|claiming| claiming.attempt.is_some()) else { return };
        let release = claiming.end_attempt(now);
        cx.act(Action::ClaimEnded);
        if let Some(release) = release {
            cx.act(Action::Release(release));
        }
    }

    /// Whether the task behind this leader could go on in its place at the server.
    fn has_successor(&self, id: WaiterId, config: &Config) -> bool {
        let Some((front, leader)) = self.queue.front().filter(|_| config.capabilities.queues) else { return false };
        let State::Claiming(claiming) = &leader.state else { return false };
        let usable = front == id && claiming.transferable && claiming.left_behind;
        let fits = |next: &Waiter<W>| {
            matches!(next.state, State::Queued) && next.request.matches(leader.request.ttl, &leader.request.owner)
        };
        usable && self.queue.second().is_some_and(fits)
    }
}

/// The lease that tasks share.
impl<W: Default, L: Default> KeyEngine<W, L> {
    fn hold(&self, id: HoldId) -> Option<&Hold<L>> {
        self.holds.iter().find(|hold| hold.id == id)
    }

    fn hold_mut(&mut self, id: HoldId) -> Option<&mut Hold<L>> {
        self.holds.iter_mut().find(|hold| hold.id == id)
    }

    fn is_shared(&self, id: HoldId) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.hold == id)
    }

    /// The tenure that nobody has, if the shared lease lingers.
    fn idle_tenure(&self) -> Option<Tenure> {
        let shared = self.shared.as_ref().filter(|shared| shared.idle)?;
        self.hold(shared.hold).map(|hold| hold.tenure)
    }

    fn begin_hold(
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
        let plan = RenewalPlan::new(lease, request.ttl, cx.config.drift, first, ends);
        let (owner, ttl, fence) = (request.owner.clone(), request.ttl, tokens.first());
        self.last_hold += 1;
        let id = HoldId(self.last_hold);
        let mut hold = Hold::begin(id, Beginning { holder, owner, ttl, fence, plan, stray_until }, now);
        cx.act(Action::Began);
        set_timer(&mut hold, cx);
        let tenure = hold.tenure;
        if self.holds.is_empty() {
            // A key has mostly one.
            self.holds.reserve_exact(1);
        }
        self.holds.push(hold);
        (id, tenure)
    }

    /// The next task in line gets the lease after `from`, if it suits and may be passed on.
    fn hand_over(&mut self, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == shared.hold) else { return false };
        let fits = |waiter: &Waiter<W>| {
            matches!(waiter.state, State::Queued) && waiter.request.matches(hold.ttl, &hold.owner)
        };
        let Some((_, waiter)) = self.queue.front().filter(|(_, waiter)| fits(waiter)) else { return false };
        let Some(fence) = shared.next(cx.config, cx.now) else { return false };
        let ends = waiter.request.max_hold.map_or(Moment::NEVER, |max_hold| cx.now + max_hold);
        let next = Tenure { number: 0, fence, since: cx.now, idle: false };
        if !hold.pass(from, next, ends) {
            return false;
        }
        if shared.passed(cx.config, cx.now) {
            hold.expedite(cx.now, Duration::ZERO);
        }
        set_timer(hold, cx);
        if shared.is_used_up() {
            self.block = self.block.saturating_mul(8).min(LARGEST_BLOCK);
        }
        let grant = Grant { hold: hold.id, tenure: hold.tenure, source: Source::Shared };
        if let Some(task) = self.queue.serve_front(Step::Granted(grant)) {
            cx.act(Action::Wake(task));
        }
        true
    }

    /// Leaves the shared lease to the next task, or keeps it for a moment.
    fn pass_on(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        if self.hand_over(tenure, cx) || self.queue.line_is_empty() && self.linger(id, tenure, cx) {
            self.settle(None, cx);
            return true;
        }
        false
    }

    /// Keeps the lease after its last tenure, if no other client is known to wait for it.
    fn linger(&mut self, id: HoldId, from: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        let Some(limits) = cx.config.sharing.filter(|limits| !limits.linger.is_zero()) else { return false };
        debug_assert!(!limits.linger.is_zero());
        let Some(shared) = &mut self.shared else { return false };
        if shared.others_wait(cx.config) || shared.next(cx.config, cx.now).is_none() {
            return false;
        }
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == id) else { return false };
        let idle = Tenure { number: 0, fence: from.fence, since: cx.now, idle: true };
        if !hold.pass(from, idle, Moment::NEVER) {
            return false;
        }
        shared.idle = true;
        // Whether somebody waits is asked at once.
        hold.expedite(cx.now, Duration::ZERO);
        set_timer(hold, cx);
        cx.act(Action::Linger { hold: id, tenure: hold.tenure });
        true
    }

    /// The shared lease is about to be released.
    fn stop_sharing(&mut self, cx: &mut Context<'_, W, L>) {
        let queued = self.leader_claims();
        let (Some(shared), Some(limits)) = (self.shared.take(), cx.config.sharing) else { return };
        if shared.yields(cx.config, &limits, cx.now) {
            self.yield_until = cx.now + yield_for(cx.config, &limits, cx.rng.next_u64());
        }
        self.history = shared.ended(queued, cx.config, &limits, cx.now);
    }

    /// The server says how many other clients wait.
    fn on_waiters(&mut self, others: u32, cx: &mut Context<'_, W, L>) {
        // A leader that claims already may be the one that waits at the server, and then nothing is passed on any more.
        if self.leader_claims() {
            return;
        }
        let (Some(shared), Some(limits)) = (&mut self.shared, &cx.config.sharing) else { return };
        shared.on_waiters(others, cx.config, limits, cx.now);
        if shared.idle && others > 0 {
            let hold = shared.hold;
            self.shared = None;
            self.give_back(hold, true, cx);
        }
        self.settle(None, cx);
    }

    fn leader_claims(&self) -> bool {
        self.queue.front().is_some_and(|(_, waiter)| !matches!(waiter.state, State::Queued))
    }

    /// Calls the first task in line to claim, if there is nothing to wait for here: no lease, or one that does not suit, or
    /// one that this tenure uses up. So it has its place at the server before that lease is released; unless the key must be
    /// left free then.
    fn settle(&mut self, mut pending: Option<Box<PendingClaim>>, cx: &mut Context<'_, W, L>) {
        // A lease that nobody has, and that those who wait cannot get.
        if !self.queue.line_is_empty()
            && let Some(hold) = self.shared.as_ref().filter(|shared| shared.idle).map(|shared| shared.hold)
        {
            self.shared = None;
            self.give_back(hold, true, cx);
        }
        let shared = self.shared.as_ref().and_then(|shared| Some((shared, self.hold(shared.hold)?)));
        let waits = |waiter: &Waiter<W>| {
            let Some(((shared, hold), limits)) = shared.zip(cx.config.sharing.as_ref()) else { return false };
            let suits = waiter.request.matches(hold.ttl, &hold.owner);
            suits && shared.has_more() || shared.yields(cx.config, limits, cx.now)
        };
        let calls = |waiter: &Waiter<W>| matches!(waiter.state, State::Queued) && !waits(waiter);
        if self.queue.front().is_some_and(|(_, waiter)| calls(waiter))
            && let Some(waiter) = self.queue.front_mut()
        {
            let suits = |pending: &mut Box<PendingClaim>| {
                waiter.request.matches(pending.claim.ttl, &pending.claim.holder.owner)
            };
            waiter.state = State::Called(pending.take_if(suits));
            cx.act(Action::Wake(std::mem::take(&mut waiter.task)));
        }
        // Nobody goes on from there.
        if let Some(pending) = pending {
            cx.act(Action::ClaimEnded);
            cx.act(Action::Release(pending.release(cx.now)));
        }
    }

    /// Nobody has this lease any more.
    fn give_back(&mut self, id: HoldId, background: bool, cx: &mut Context<'_, W, L>) {
        if background && let Some(hold) = self.hold(id) {
            let release = pending_release(hold, cx);
            cx.act(Action::Release(release));
        }
        self.end(id, End::Released, cx);
    }

    fn lose(&mut self, id: HoldId, reason: LossReason, cx: &mut Context<'_, W, L>) {
        if let Some(hold) = self.hold(id)
            // Its task may hang for ever, and not every place has leases that end. Or no task has it: it lingers, or the task
            // that it was handed to has not run since.
            && (reason == LossReason::MaxHold || hold.tenure.idle || self.queue.is_granted(id, hold.tenure))
        {
            let release = pending_release(hold, cx);
            cx.act(Action::Release(release));
        }
        if self.is_shared(id) {
            self.shared = None;
        }
        self.end(id, End::Lost(reason), cx);
        self.settle(None, cx);
    }

    fn end(&mut self, id: HoldId, end: End, cx: &mut Context<'_, W, L>) {
        let Some(index) = self.holds.iter().position(|hold| hold.id == id) else { return };
        let Hold { id, tenure, lease, timer, .. } = self.holds.swap_remove(index);
        if self.holds.is_empty() {
            self.holds = Vec::new();
        }
        cx.act(Action::Ended(Ended { hold: id, lease, tenure, end, timer }));
    }

    /// Who comes first here, for one who does not wait in line.
    fn first_in_line(&self) -> Option<Occupied> {
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

fn set_timer<W, L>(hold: &mut Hold<L>, cx: &mut Context<'_, W, L>) {
    let Some(to) = hold.next_timer(cx.now).filter(|to| *to != hold.timer) else { return };
    let from = std::mem::replace(&mut hold.timer, to);
    cx.act(Action::SetTimer { hold: hold.id, from, to });
}

/// How long the key is left free for other clients.
fn yield_for(config: &Config, limits: &SharingLimits, random: u64) -> Duration {
    if config.capabilities.queues { limits.pause } else { spread(YIELD_BLIND, random) }
}

fn pending_release<W, L>(hold: &Hold<L>, cx: &Context<'_, W, L>) -> PendingRelease {
    PendingRelease {
        key: cx.key.clone(),
        holder: hold.holder,
        until: cx.now + hold.ttl.get(),
        stray_until: hold.stray_until,
        is_hold: true,
    }
}

fn unknown_occupant() -> Occupied {
    Occupied::new(Occupant::Foreign(crate::Foreign::other("no answer yet")), Expiry::Never)
}
