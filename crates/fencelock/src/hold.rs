use fencelock_core::{Clock, Due, FencingToken, HolderId, Key, LossReason, Moment, RenewalPlan, Ttl};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What a guard and the watchdog know together of one held key.
///
/// The lapse is latched: whoever looks first at or after the end makes the loss final, under the same lock that a
/// renewal takes. So nobody can see a hold that was lost come back.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    pub(crate) fence: FencingToken,
    pub(crate) ttl: Ttl,
    pub(crate) since: Moment,
    /// Until then, a request whose answer never came may still arrive at the server.
    pub(crate) stray_until: Moment,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug)]
struct State {
    plan: RenewalPlan,
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
    pub(crate) fn new(
        key: Key,
        holder: HolderId,
        fence: FencingToken,
        ttl: Ttl,
        plan: RenewalPlan,
        stray_until: Moment,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let state = State { plan, scheduled: Moment::NEVER, renewing: false, hurried: false, end: None };
        let since = clock.now();
        Self { key, holder, fence, ttl, since, stray_until, clock, state: Mutex::new(state), ended: Notify::new() }
    }

    /// The end, if it has come; looking makes a lapse final.
    pub(crate) fn end(&self) -> Option<End> {
        let mut state = self.state();
        self.latch(&mut state);
        state.end.clone()
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        match self.end() {
            Some(End::Lost(reason)) => Some(reason),
            Some(End::LetGo) | None => None,
        }
    }

    /// How long the holder may believe in it; zero once it has ended.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.state();
        self.latch(&mut state);
        if state.end.is_some() { Duration::ZERO } else { state.plan.until().since(self.clock.now()) }
    }

    /// Waits for the loss. Needs no watchdog: the end of the lease is this future's own timer.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            match self.end() {
                Some(End::Lost(reason)) => return reason,
                Some(End::LetGo) => std::future::pending().await,
                None => {}
            }
            // Timers stand still while the machine sleeps; a second is how late a loss in sleep may be told.
            let nap = self.remaining().min(Duration::from_secs(1));
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    /// The owner gives it up: from now on nothing renews it. Says how it had ended before, if it had.
    pub(crate) fn let_go(&self) -> Option<End> {
        let mut state = self.state();
        self.latch(&mut state);
        let before = state.end.clone();
        state.end.get_or_insert(End::LetGo);
        before
    }

    /// A backend says that the hold is over. The first reason stays.
    pub(crate) fn lose(&self, reason: LossReason) {
        let mut state = self.state();
        state.renewing = false;
        // A lease that had run out by then ended by itself, whatever became of the key.
        self.latch(&mut state);
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

    /// The time of a look has come.
    pub(crate) fn duty(&self) -> Duty {
        let mut state = self.state();
        if state.renewing || matches!(state.end, Some(End::LetGo)) {
            return Duty::Nothing;
        }
        self.latch(&mut state);
        if let Some(End::Lost(reason)) = &state.end {
            return Duty::Ended(reason.clone());
        }
        match state.plan.due(self.clock.now()) {
            Due::At(_) => Duty::Sleep,
            Due::Renew => {
                state.renewing = true;
                Duty::Renew
            }
            // The latch has seen to both.
            Due::Lapsed | Due::MaxHold => Duty::Nothing,
        }
    }

    /// A renewal sent at `sent` was confirmed.
    pub(crate) fn renewed(&self, sent: Moment, dice: u64) {
        let mut state = self.state();
        self.latch(&mut state);
        state.renewing = false;
        if state.end.is_none() {
            // The latch has just found the lease alive, at a moment no earlier than its `now`.
            let now = self.clock.now();
            if let Err(reason) = state.plan.renewed(sent, now, dice) {
                state.end = Some(End::Lost(reason));
                self.ended.notify_waiters();
            }
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

    fn latch(&self, state: &mut State) {
        if state.end.is_some() {
            return;
        }
        let reason = match state.plan.due(self.clock.now()) {
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
