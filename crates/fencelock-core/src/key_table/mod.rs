//! The rules of the keys of one backend, without I/O: the specification that all backends are compared with, and
//! the backend in memory.

mod key_step;
#[cfg(test)]
mod tests;

use crate::{Clock, Event, Holding, Key, Moment, Reply, Request};
use key_step::KeyState;
pub use key_step::KeyStep;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The keys of a backend that has a queue, all modes and completions: who holds them, who waits, and what each request is answered.
///
/// ```
/// use fencelock_core::{Acquire, Claim, ClockReading, Holder, HolderId, Intent, Key, KeyTable, Owner, Ttl};
///
/// let mut table = KeyTable::new("here");
/// let holder = Holder { id: HolderId::from_bytes([1; 16]), owner: Owner::from_text("web-1:42") };
/// let claim = Claim::new(Key::new("k").unwrap(), holder, Ttl::default(), Intent::Try);
/// let granted = table.step(&claim.key, ClockReading::from_micros(1_000_000), |key| key.claim(&claim, None));
/// assert!(matches!(granted.unwrap(), Acquire::Granted { .. }));
/// ```
#[derive(Debug, Clone, Hash)]
pub struct KeyTable {
    backend: String,
    leases: bool,
    by_key: BTreeMap<Key, KeyState>,
    /// No token of a key that was removed is greater, so a key that comes back continues after it.
    greatest: u64,
    /// Keys whose last token was young when they became free: each once, as its state says.
    young: VecDeque<Key>,
    events: Vec<Event>,
}

/// What the clock of a backend shows at a step. Exhaustive: a clock shows these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// For leases.
    pub now: Moment,
    /// For fencing tokens and completions: microseconds since 1970.
    pub wall_micros: u64,
}

impl ClockReading {
    /// What this clock shows.
    pub fn of(clock: &dyn Clock) -> Self {
        Self { now: clock.now(), wall_micros: clock.wall_micros() }
    }

    /// Both are `micros` after their start.
    pub const fn from_micros(micros: u64) -> Self {
        Self { now: Moment::from_micros(micros), wall_micros: micros }
    }
}

/// For how many microseconds after its last token a free key is kept. A key that comes back continues after the tokens of all that were
/// removed, and each microsecond gives one token: so every key can have a block of this many, however busy the others are.
const YOUNG: u64 = 10_000;

impl KeyTable {
    /// The lease of a hand-off until it is confirmed. A live waiter confirms within milliseconds; a stopped one delays the others for
    /// this time. It is long enough for a waiter whose last poll was a second ago.
    pub const CLAIM_TTL: Duration = Duration::from_secs(3);
    /// A waiter polls every second; it is skipped after three seconds without a poll.
    pub const WAITER_LIFE: Duration = Duration::from_secs(3);

    /// No keys. Errors name `backend`. Holds and waiters do not expire.
    pub fn new(backend: impl Into<String>) -> Self {
        let (by_key, young, events) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        Self { backend: backend.into(), leases: false, by_key, greatest: 0, young, events }
    }

    /// The same with holds that expire unless they are renewed, and waiters unless they poll.
    #[must_use]
    pub fn with_leases(self) -> Self {
        Self { leases: true, ..self }
    }

    /// Answers a request in one step for each key. It may add events.
    pub fn answer(&mut self, request: Request<'_>, at: ClockReading) -> Reply {
        let Some(key) = request.key() else {
            return match request {
                Request::Renew(renewals) => {
                    let renewed = renewals.iter().map(|one| Ok(self.step(&one.key, at, |key| key.renew(one))));
                    renewed.collect::<Vec<_>>().into()
                }
                Request::List => self.list(at.now).into(),
                _ => request.unsupported(&*self.backend),
            };
        };
        self.step(key, at, |key| match request {
            Request::Claim(claim, proposal) => key.claim(claim, proposal).into(),
            Request::Release(_, holder) => key.release(holder).into(),
            Request::Inspect(_) => key.inspect().into(),
            Request::Watch(_) => {
                key.watch();
                Reply::Done(())
            }
            Request::Downgrade(hold, proposal) => key.downgrade(hold, proposal).into(),
            Request::Resize(_, limit) => key.resize(limit).into(),
            Request::Raise(_, holder, to) => key.raise(holder, to).into(),
            Request::Evict(seen) => key.evict(seen).into(),
            Request::ReadCompletion(_) => key.read_completion().into(),
            Request::WriteCompletion(_, holder, done) => key.write_completion(holder, done).into(),
            Request::ConfirmCompletion(..) => Reply::Done(()),
            Request::ClearCompletion(_, seen) => key.clear_completion(seen).into(),
            Request::RestoreCompletion(_, seen) => {
                key.restore_completion(seen);
                Reply::Done(())
            }
            _ => request.unsupported(key.backend),
        })
    }

    /// Runs one atomic step on a key, like a script on a server, after the holds that are over have ended. It may add events.
    pub fn step<T>(&mut self, key: &Key, at: ClockReading, step: impl FnOnce(&mut KeyStep<'_>) -> T) -> T {
        let Self { backend, leases, by_key, greatest, events, .. } = self;
        let state = by_key.entry(key.clone()).or_insert_with(|| KeyState::after(*greatest));
        let mut on_key = KeyStep { state, backend, leases: *leases, key, at, events };
        on_key.expire();
        let answer = step(&mut on_key);
        on_key.report_watched_end();
        // Like a server, a table with leases keeps the last token of each key: the nodes of a quorum compare them.
        if state.is_free() && !(*leases && state.fence > 0) {
            self.forget_free(key, at.wall_micros);
        }
        answer
    }

    /// The events of all steps since the last call, in their order. The caller sends them.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// All keys that are held.
    pub fn list(&self, now: Moment) -> Vec<Holding> {
        self.by_key.iter().filter_map(|(key, state)| state.holding(key, now)).collect()
    }

    /// Removes a key that is free, unless it is young, and those that were.
    fn forget_free(&mut self, key: &Key, wall: u64) {
        let is_young = |state: &KeyState| state.fence.saturating_add(YOUNG) > wall;
        match self.by_key.get_mut(key) {
            Some(state) if state.is_listed => {}
            Some(state) if is_young(state) => {
                state.is_listed = true;
                self.young.push_back(key.clone());
            }
            _ => self.remove(key),
        }
        // Two, so that they become fewer.
        for _ in 0..2 {
            let Some(next) = self.young.pop_front() else { break };
            match self.by_key.get_mut(&next) {
                Some(state) if is_young(state) => self.young.push_back(next),
                Some(state) if !state.is_free() => state.is_listed = false,
                _ => self.remove(&next),
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let fence = self.by_key.remove(key).map_or(0, |state| state.fence);
        self.greatest = self.greatest.max(fence);
    }
}
