//! Records what the tasks of this worker hold together.

use crate::audit::MAX_CHANGES;
use crate::protocol::HoldChange;
use crate::protocol::{LoadJob, LoadMode, Workload};
use fencelock::Moment;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one task holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Exclusive,
    Shared,
    Permits(u32),
}

/// The changes of a worker after its warm-up; `None` if its holds are not checked.
pub(crate) struct Holds(Option<Mutex<Changes>>);

struct Changes {
    counted: Moment,
    exclusive: u32,
    readers: u32,
    permits: u32,
    list: Vec<HoldChange>,
}

impl Holds {
    /// The holds of one key are checked. A sale checks exclusive ones by its stock.
    pub(crate) fn of(job: &LoadJob, counted: Moment) -> Self {
        Self::from(counted, job.mode != LoadMode::Exclusive && job.workload == Workload::HotKey)
    }

    /// Records the holds from this time on, if they are checked.
    pub(crate) fn from(counted: Moment, is_checked: bool) -> Self {
        let changes = || Changes { counted, exclusive: 0, readers: 0, permits: 0, list: Vec::new() };
        Self(is_checked.then(|| Mutex::new(changes())))
    }

    /// A request has returned.
    pub(crate) fn begin(&self, hold: Hold, now: impl Fn() -> Moment) {
        self.change(now, |changes| match hold {
            Hold::Exclusive => changes.exclusive += 1,
            Hold::Shared => changes.readers += 1,
            Hold::Permits(weight) => changes.permits += weight,
        });
    }

    /// A release is about to be sent.
    pub(crate) fn end(&self, hold: Hold, now: impl Fn() -> Moment) {
        self.change(now, |changes| match hold {
            Hold::Exclusive => changes.exclusive -= 1,
            Hold::Shared => changes.readers -= 1,
            Hold::Permits(weight) => changes.permits -= weight,
        });
    }

    /// All changes so far.
    pub(crate) fn list(&self) -> Vec<HoldChange> {
        self.0.as_ref().map_or_else(Vec::new, |changes| locked(changes).list.clone())
    }

    fn change(&self, now: impl Fn() -> Moment, change: impl FnOnce(&mut Changes)) {
        let Some(changes) = &self.0 else { return };
        let mut changes = locked(changes);
        let before = changes.sums();
        change(&mut changes);
        let after = changes.sums();
        if before == after || changes.list.len() >= MAX_CHANGES {
            return;
        }
        // With the mutex held, so that the list is in the order of its times.
        let now = now();
        if now >= changes.counted {
            let micros = u64::try_from(now.since(Moment::default()).as_micros()).unwrap_or(u64::MAX);
            changes.list.push(HoldChange(micros, after.0, after.1));
        }
    }
}

impl Changes {
    /// Readers count as one, because each change of their number would fill the list.
    fn sums(&self) -> (u32, u32) {
        (self.exclusive, self.permits + self.readers.min(1))
    }
}

fn locked(changes: &Mutex<Changes>) -> MutexGuard<'_, Changes> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(micros: u64) -> Moment {
        Moment::default() + Duration::from_micros(micros)
    }

    fn holds(mode: LoadMode) -> Holds {
        Holds::of(&LoadJob::of_one_key(mode), at(10))
    }

    #[test]
    fn the_first_and_the_last_reader_are_changes_after_the_warm_up() {
        let holds = holds(LoadMode::Shared { writers_ppm: 1 });
        holds.begin(Hold::Shared, || at(5));
        holds.end(Hold::Shared, || at(11));
        holds.begin(Hold::Exclusive, || at(12));
        holds.end(Hold::Exclusive, || at(13));
        holds.begin(Hold::Shared, || at(14));
        holds.begin(Hold::Shared, || at(15));
        holds.end(Hold::Shared, || at(16));
        let list = [(11, 0, 0), (12, 1, 0), (13, 0, 0), (14, 0, 1)].map(|(t, x, s)| HoldChange(t, x, s));
        assert_eq!(holds.list(), list);
    }

    #[test]
    fn a_full_list_stays_as_it_is() {
        let holds = holds(LoadMode::Permits { limit: 2, weight: 2 });
        for _ in 0..MAX_CHANGES {
            holds.begin(Hold::Permits(2), || at(20));
            holds.end(Hold::Permits(2), || at(21));
        }
        assert_eq!((holds.list().len(), holds.list()[0]), (MAX_CHANGES, HoldChange(20, 0, 2)));
    }

    #[test]
    fn exclusive_holds_are_not_recorded() {
        let holds = holds(LoadMode::Exclusive);
        holds.begin(Hold::Exclusive, || at(20));
        assert!(holds.list().is_empty());
    }
}
