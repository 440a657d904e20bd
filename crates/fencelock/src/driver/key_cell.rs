use super::Driver;
use fencelock_core::engine::{Action, Actions, ClaimReport, End, Ended, Env, HoldId, KeyEngine, LeaseNews};
use fencelock_core::{HolderId, Key, Mode, Moment, Ttl, lock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use tokio::sync::Notify;

pub(crate) type Engine = KeyEngine<Option<Waker>, Option<Arc<HeldLease>>>;
pub(super) type KeyActions = Actions<Option<Waker>, Option<Arc<HeldLease>>>;
pub(crate) type Cx<'a> = Env<'a, Option<Waker>, Option<Arc<HeldLease>>>;

/// One key of a client, with its engine.
pub(crate) struct KeyCell {
    pub(crate) key: Key,
    /// The mode that its tasks request.
    pub(super) mode: Mode,
    pub(crate) driver: Arc<Driver>,
    state: Mutex<State>,
}

struct State {
    engine: Engine,
    /// It became empty, and was removed from the keys of the client.
    gone: bool,
}

impl KeyCell {
    pub(super) fn new(key: Key, mode: Mode, driver: Arc<Driver>) -> Self {
        let state = Mutex::new(State { engine: Engine::default(), gone: false });
        Self { key, mode, driver, state }
    }

    /// Calls the engine and executes its actions.
    pub(crate) fn with<R>(self: &Arc<Self>, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R) -> R {
        self.with_state(lock(&self.state), call).0
    }

    /// As [`KeyCell::with`]. Also returns the report for the task that claims. `None` if the cell was removed, so the caller must use another
    /// one.
    pub(super) fn try_with<R>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R,
    ) -> Option<(R, Option<ClaimReport>)> {
        let state = lock(&self.state);
        if state.gone {
            drop(state);
            self.driver.forget(self);
            return None;
        }
        Some(self.with_state(state, call))
    }

    fn with_state<R>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R,
    ) -> (R, Option<ClaimReport>) {
        let mut out = Actions::new();
        let (config, open, now) = (&self.driver.config, self.driver.is_open(), self.driver.clock.now());
        let answer = self.driver.rng.with(|rng| {
            let cx = &mut Env { key: &self.key, config, open, now, rng, out: &mut out };
            let answer = call(&mut state.engine, cx);
            state.engine.tidy(cx);
            answer
        });
        // With the key locked, so that two calls cannot move one timer in the wrong order.
        self.driver.timers.apply(self, &out);
        for action in &out {
            if let Action::Ended(ended) = action
                && let Some(lease) = &ended.lease
            {
                lease.state().news.on_ended(ended);
            }
        }
        let empty = state.engine.is_empty();
        let was_gone = std::mem::replace(&mut state.gone, empty);
        drop(state);
        let report = self.carry_out(&mut out);
        if empty && !was_gone {
            self.driver.forget(self);
        }
        (answer, report)
    }

    /// Executes the actions that need no lock. Wake-ups come first, because tasks wait for them.
    fn carry_out(self: &Arc<Self>, out: &mut KeyActions) -> Option<ClaimReport> {
        let (driver, mut report) = (&self.driver, None);
        for action in out.drain(..) {
            match action {
                Action::Wake(waker) => waker.map_or((), Waker::wake),
                Action::Began | Action::SetTimer { .. } => {}
                Action::Ended(ended) => self.on_ended(&ended),
                Action::Release(release) => driver.reap(*release),
                Action::ClaimBegan(mode) => driver.telemetry.waiting(&self.key, mode),
                Action::ClaimEnded(mode) => driver.telemetry.waited(mode),
                Action::Queued => driver.queued_here(self),
                Action::FallbackPoll => driver.telemetry.fallback_poll(&self.key),
                Action::GrantedTooLate => tracing::warn!(key = %self.key, "granted too late, releasing it"),
                Action::WaitsForOwn { waited, place } => tracing::warn!(
                    key = %self.key,
                    %place,
                    "waiting for {}, while a task of this client has the key: a task that requests a key that it has waits forever",
                    crate::Span(waited)
                ),
                Action::Report(new_report) => report = Some(*new_report),
            }
        }
        report
    }

    fn on_ended(&self, ended: &Ended<Option<Arc<HeldLease>>>) {
        if let Some(lease) = &ended.lease {
            lease.ended.notify_waiters();
            let wakers = lease.state().wakers.take();
            wakers.into_iter().flat_map(|wakers| *wakers).for_each(Waker::wake);
        }
        if let End::Lost(reason) = &ended.end {
            for tenure in std::iter::once(&ended.tenure).chain(&ended.others) {
                self.driver.telemetry.lost(&self.key, tenure, reason, self.driver.clock.now());
            }
        }
    }
}

/// The state that the guards of one hold share: what was granted, and how it ended. It outlives the hold.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) hold: HoldId,
    pub(crate) holder: HolderId,
    pub(crate) ttl: Ttl,
    /// Until then, a claim without a reply may still arrive at the server.
    pub(crate) stray_until: Moment,
    state: Mutex<LeaseState>,
    /// Wakes the tasks that wait for the end.
    pub(crate) ended: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct LeaseState {
    pub(crate) news: LeaseNews,
    /// Of tasks that watch many holds, until its end.
    wakers: Option<Box<SmallVec<[Waker; 1]>>>,
}

impl HeldLease {
    pub(crate) fn new(hold: HoldId, holder: HolderId, ttl: Ttl, stray_until: Moment) -> Self {
        Self { hold, holder, ttl, stray_until, state: Mutex::default(), ended: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        lock(&self.state)
    }
}

/// Wakes a task when a lease ends, until this is dropped.
#[derive(Debug)]
pub(crate) struct LeaseWaker {
    lease: Arc<HeldLease>,
    waker: Waker,
}

impl LeaseWaker {
    pub(crate) fn new(lease: &Arc<HeldLease>, waker: &Waker) -> Self {
        lease.state().wakers.get_or_insert_default().push(waker.clone());
        Self { lease: Arc::clone(lease), waker: waker.clone() }
    }
}

impl Drop for LeaseWaker {
    fn drop(&mut self) {
        if let Some(wakers) = &mut self.lease.state().wakers
            && let Some(index) = wakers.iter().position(|waker| waker.will_wake(&self.waker))
        {
            wakers.swap_remove(index);
        }
    }
}

/// The keys that a client waits for or holds, each with a cell for each mode: the tasks that read a key share leases at the same time and
/// not one after another, and those that request the same permits share several leases.
#[derive(Default)]
pub(crate) struct Keys {
    cells: Mutex<HashMap<Key, Cells>>,
}

/// A key usually has one.
type Cells = SmallVec<[Arc<KeyCell>; 1]>;

impl Keys {
    /// Whether no task waits for a key or holds one.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.cells).is_empty()
    }

    pub(super) fn all(&self) -> Vec<Arc<KeyCell>> {
        let mut all: Vec<_> = lock(&self.cells).values().flatten().cloned().collect();
        // So that a simulation has the same order in every run.
        all.sort_unstable_by(|one, other| (&one.key, one.mode).cmp(&(&other.key, other.mode)));
        all
    }

    /// All cells of a key: the events of the backend are for each of them.
    pub(crate) fn of_key(&self, key: &Key) -> impl Iterator<Item = Arc<KeyCell>> + use<> {
        lock(&self.cells).get(key).cloned().unwrap_or_default().into_iter()
    }

    /// The cell of a key. It may be removed before it is used: [`KeyCell::try_with`].
    pub(super) fn get_or_insert(&self, key: &Key, mode: Mode, driver: &Arc<Driver>) -> Arc<KeyCell> {
        let mut keys = lock(&self.cells);
        let cells = keys.entry(key.clone()).or_default();
        if let Some(known) = cells.iter().find(|cell| cell.mode == mode) {
            return Arc::clone(known);
        }
        let new = Arc::new(KeyCell::new(key.clone(), mode, Arc::clone(driver)));
        cells.push(Arc::clone(&new));
        new
    }

    /// Removes a key that no task waits for or holds.
    pub(super) fn forget(&self, cell: &KeyCell) {
        let mut keys = lock(&self.cells);
        let Some(cells) = keys.get_mut(&cell.key) else { return };
        cells.retain(|known| !std::ptr::eq(known.as_ref(), cell));
        if cells.is_empty() {
            keys.remove(&cell.key);
        }
    }
}
