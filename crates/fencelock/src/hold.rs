use crate::identity::Process;
use crate::janitor::Chore;
use crate::local::room::Room;
use fencelock_core::{Clock, Due, FencingToken, HolderId, Key, LossReason, Moment, Owner, Renewal, RenewalPlan, Ttl};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What the guards and the watchdog know together of one held key.
///
/// A hold is one lease of one holder. Tasks that share it have it in turns, each with a fencing token of its own; only the
/// last turn goes on.
///
/// The lapse is latched: whoever looks first at or after the end makes the loss final, under the same lock that a
/// renewal takes. So nobody can see a hold that was lost come back, and no turn begins after it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    pub(crate) owner: Owner,
    pub(crate) ttl: Ttl,
    /// Until then, a request whose answer never came may still arrive at the server.
    pub(crate) stray_until: Moment,
    /// Where tasks of this client wait for their turn, if it can be shared.
    pub(crate) room: Option<Arc<Room>>,
    /// Whether the watchdog has it in its table, under whose lock this is read and written.
    pub(crate) watched: AtomicBool,
    /// Who has it. A fork does not, and must not wait for the locks in here.
    process: Process,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    ended: Notify,
}

/// One task's part of a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    number: u64,
    pub(crate) fence: FencingToken,
    pub(crate) since: Moment,
    /// Nobody has it: the lease is kept for whoever comes next.
    pub(crate) idle: bool,
}

impl Turn {
    pub(crate) const fn is(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// How a hold begins.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    pub(crate) owner: Owner,
    pub(crate) ttl: Ttl,
    pub(crate) fence: FencingToken,
    pub(crate) plan: RenewalPlan,
    pub(crate) stray_until: Moment,
    pub(crate) room: Option<Arc<Room>>,
    pub(crate) process: Process,
}

#[derive(Debug)]
struct State {
    plan: RenewalPlan,
    turn: Turn,
    /// How long the lease ran when it began, or was renewed last.
    fresh: Duration,
    /// Where it stands in the watchdog's timers.
    scheduled: Moment,
    renewing: bool,
    /// A hint came while a renewal was under way: look again after it.
    hurried: bool,
    end: Option<End>,
}

/// How a hold ended, as far as this process is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Its owner gave it up.
    LetGo,
    Lost(LossReason),
}

/// What the watchdog is to do with a hold whose timer has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Nothing,
    Sleep,
    Renew,
    Ended(LossReason),
}

impl Hold {
    /// With its first turn.
    pub(crate) fn begin(beginning: Beginning, clock: Arc<dyn Clock>) -> (Self, Turn) {
        let Beginning { key, holder, owner, ttl, fence, plan, stray_until, room, process } = beginning;
        let since = clock.now();
        let turn = Turn { number: 0, fence, since, idle: false };
        let fresh = plan.rest(since);
        let state = State { plan, turn, fresh, scheduled: Moment::NEVER, renewing: false, hurried: false, end: None };
        let (state, ended) = (Mutex::new(state), Notify::new());
        let watched = AtomicBool::new(false);
        (Self { key, holder, owner, ttl, stray_until, room, watched, process, clock, state, ended }, turn)
    }

    /// The turn that goes on, or was the last.
    pub(crate) fn turn(&self) -> Turn {
        self.state().turn
    }

    /// The end, if it has come; looking makes a lapse final.
    pub(crate) fn end(&self) -> Option<End> {
        let mut state = self.state();
        self.latch(&mut state, self.clock.now());
        state.end.clone()
    }

    /// Whether this is a copy in a child of the process that has it.
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// The end of a turn: if another follows, it was let go.
    pub(crate) fn end_of(&self, turn: &Turn) -> Option<End> {
        if self.is_forked() {
            return Some(End::Lost(LossReason::Forked));
        }
        let mut state = self.state();
        if state.turn.number != turn.number {
            return Some(End::LetGo);
        }
        self.latch(&mut state, self.clock.now());
        state.end.clone()
    }

    pub(crate) fn loss(&self, turn: &Turn) -> Option<LossReason> {
        match self.end_of(turn) {
            Some(End::Lost(reason)) => Some(reason),
            Some(End::LetGo) | None => None,
        }
    }

    /// How long the holder of this turn may believe in it; zero once it has ended.
    pub(crate) fn remaining(&self, turn: &Turn) -> Duration {
        if self.is_forked() {
            return Duration::ZERO;
        }
        let mut state = self.state();
        let now = self.clock.now();
        self.latch(&mut state, now);
        let over = state.end.is_some() || state.turn.number != turn.number;
        if over { Duration::ZERO } else { state.plan.until().since(now) }
    }

    /// Ends a turn and begins another, if the lease still has more than half of what it had when it was fresh: whoever
    /// gets it could not have got much more from the server. Says too whether the watchdog's timer must be set anew.
    pub(crate) fn pass(
        &self,
        from: &Turn,
        fence: FencingToken,
        max_hold: Option<Duration>,
        now: Moment,
    ) -> Option<(Turn, bool)> {
        let ends = max_hold.map_or(Moment::NEVER, |max_hold| now + max_hold);
        self.next_turn(from, Turn { number: from.number + 1, fence, since: now, idle: false }, ends)
    }

    /// Ends a turn without another one: nobody has the lease until it is passed on from the turn that comes back.
    pub(crate) fn rest_after(&self, from: &Turn, now: Moment) -> Option<(Turn, bool)> {
        let idle = Turn { number: from.number + 1, fence: from.fence, since: now, idle: true };
        self.next_turn(from, idle, Moment::NEVER)
    }

    fn next_turn(&self, from: &Turn, next: Turn, ends: Moment) -> Option<(Turn, bool)> {
        let mut state = self.state();
        self.latch(&mut state, next.since);
        if state.end.is_some() || !state.turn.is(from) || state.plan.rest(next.since) <= state.fresh / 2 {
            return None;
        }
        state.turn = next;
        let moved = state.plan.hand_on(ends);
        Some((next, moved))
    }

    /// How long the lease runs on; `None` if it has no end of its own.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let rest = self.state().plan.rest(self.clock.now());
        (rest != Duration::MAX).then_some(rest)
    }

    /// Waits for the loss. Needs no watchdog: the end of the lease is this future's own timer.
    pub(crate) async fn lost(&self, turn: &Turn) -> LossReason {
        loop {
            if self.is_forked() {
                return LossReason::Forked;
            }
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            match self.end_of(turn) {
                Some(End::Lost(reason)) => return reason,
                Some(End::LetGo) => std::future::pending().await,
                None => {}
            }
            // Timers stand still while the machine sleeps; a second is how late a loss in sleep may be told.
            let nap = self.remaining(turn).min(Duration::from_secs(1));
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    /// The owner gives it up: from now on nothing renews it. Says how it had ended before, if it had.
    pub(crate) fn let_go(&self) -> Option<End> {
        let mut state = self.state();
        self.latch(&mut state, self.clock.now());
        let before = state.end.clone();
        state.end.get_or_insert(End::LetGo);
        before
    }

    /// Its release in the background, for whoever does not wait for it.
    pub(crate) fn chore(&self) -> Chore {
        let (key, until) = (self.key.clone(), self.clock.now() + self.ttl.get());
        Chore { key, holder: self.holder, until, stray_until: self.stray_until, is_hold: true }
    }

    /// Whether a request of this holder may still be on its way, and would take the key again.
    pub(crate) fn is_stray_due(&self) -> bool {
        self.clock.now() < self.stray_until
    }

    /// A backend says that the hold is over. The first reason stays.
    pub(crate) fn lose(&self, reason: LossReason) {
        let mut state = self.state();
        state.renewing = false;
        // A lease that had run out by then ended by itself, whatever became of the key.
        self.latch(&mut state, self.clock.now());
        if state.end.is_none() {
            state.end = Some(End::Lost(reason));
            self.ended.notify_waiters();
        }
    }

    /// Decides when the watchdog is to look next.
    pub(crate) fn schedule(&self) -> Moment {
        let mut state = self.state();
        let now = self.clock.now();
        state.scheduled = match state.plan.due(now) {
            Due::At(moment) => moment,
            Due::Renew | Due::Lapsed | Due::MaxHold => now,
        };
        state.scheduled
    }

    /// Puts the next look off until `moment`.
    pub(crate) fn postpone(&self, moment: Moment) -> Moment {
        self.state().scheduled = moment;
        moment
    }

    /// When the watchdog is to look next.
    pub(crate) fn scheduled(&self) -> Moment {
        self.state().scheduled
    }

    /// A hint: something happened to the key. Says whether the next look must be moved forward.
    pub(crate) fn hurry(&self, after: Duration) -> bool {
        let mut state = self.state();
        if state.renewing {
            state.hurried = true;
            return false;
        }
        state.plan.hurry(self.clock.now() + after);
        true
    }

    /// The time of a look has come, or others are about to be renewed and it comes within `ahead`.
    pub(crate) fn duty(&self, ahead: Duration) -> Duty {
        let mut state = self.state();
        if state.renewing || matches!(state.end, Some(End::LetGo)) {
            return Duty::Nothing;
        }
        // One look at the clock: a hold that ended between two of them would have no timer any more, and nobody told.
        let now = self.clock.now();
        self.latch(&mut state, now);
        if let Some(End::Lost(reason)) = &state.end {
            return Duty::Ended(reason.clone());
        }
        match state.plan.due_with_others(now, ahead) {
            Due::At(_) => Duty::Sleep,
            Due::Renew => {
                state.renewing = true;
                Duty::Renew
            }
            // The latch has seen to both.
            Due::Lapsed | Due::MaxHold => Duty::Nothing,
        }
    }

    /// A renewal to be sent at `sent`.
    pub(crate) fn renewal(&self, sent: Moment) -> Renewal {
        Renewal::new(self.key.clone(), self.holder, self.ttl).with_told(self.state().plan.told(sent))
    }

    /// A renewal sent at `sent` was confirmed.
    pub(crate) fn renewed(&self, sent: Moment, dice: u64) {
        let mut state = self.state();
        self.latch(&mut state, self.clock.now());
        state.renewing = false;
        if state.end.is_none() {
            // The latch has just found the lease alive, at a moment no earlier than its `now`.
            let now = self.clock.now();
            if let Err(reason) = state.plan.renewed(sent, now, dice) {
                state.end = Some(End::Lost(reason));
                self.ended.notify_waiters();
            }
            state.fresh = state.plan.rest(now);
        }
        self.look_again(&mut state);
    }

    /// A renewal could not be confirmed.
    pub(crate) fn not_renewed(&self, dice: u64) {
        let mut state = self.state();
        state.renewing = false;
        let now = self.clock.now();
        state.plan.failed(now, dice);
        self.look_again(&mut state);
    }

    fn look_again(&self, state: &mut State) {
        if std::mem::take(&mut state.hurried) {
            state.plan.hurry(self.clock.now());
        }
    }

    fn latch(&self, state: &mut State, now: Moment) {
        if state.end.is_some() {
            return;
        }
        let reason = match state.plan.due(now) {
            Due::Lapsed => LossReason::Expired,
            Due::MaxHold => LossReason::MaxHold,
            Due::At(_) | Due::Renew => return,
        };
        state.end = Some(End::Lost(reason));
        self.ended.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Drift, Lease};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A millisecond passes from one look at it to the next.
    #[derive(Debug)]
    struct Ticking(AtomicU64);

    impl Clock for Ticking {
        fn now(&self) -> Moment {
            Moment::from_micros(self.0.fetch_add(1, Ordering::Relaxed) * 1000)
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_hold_that_ends_while_it_is_looked_at_is_not_forgotten() {
        let (clock, ttl) = (Arc::new(Ticking(AtomicU64::new(0))), Ttl::default());
        let lease = Lease::granted(Moment::default(), ttl.get(), Drift::default());
        let beginning = Beginning {
            key: Key::new("k").unwrap(),
            holder: HolderId::from_bytes([1; 16]),
            owner: Owner::from_text("test:1"),
            ttl,
            fence: FencingToken::new(1).unwrap(),
            plan: RenewalPlan::new(lease, ttl, Drift::default(), Moment::NEVER, Moment::from_micros(20_000)),
            stray_until: Moment::default(),
            room: None,
            process: Process::current(),
        };
        let (hold, _) = Hold::begin(beginning, clock);
        let told = (0..30).map(|_| hold.duty(Duration::ZERO)).find(|duty| *duty != Duty::Sleep);
        assert_eq!(told, Some(Duty::Ended(LossReason::MaxHold)), "whoever gets another answer looks no more");
    }
}
