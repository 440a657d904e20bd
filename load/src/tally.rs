//! The counters of a worker.

use crate::protocol::{LoadJob, Log, Share};
use crate::waits::Waits;
use fencelock::Moment;
use hdrhistogram::Histogram;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counters of a worker. Its tasks run on one thread, so they do not contend for the mutex.
pub(crate) struct Tally {
    counted: Moment,
    end: Moment,
    shares: Vec<AtomicU64>,
    counts: Mutex<Counts>,
}

struct Counts {
    waits: Histogram<u64>,
    errors: u64,
    first_error: Option<String>,
}

impl Tally {
    pub(crate) fn new(job: &LoadJob, counted: Moment, end: Moment) -> Self {
        let Ok(waits) = Histogram::new(3) else { unreachable!("three digits are allowed") };
        let counts = Mutex::new(Counts { waits, errors: 0, first_error: None });
        let shares = (0..job.tasks).map(|_| AtomicU64::new(0)).collect();
        Self { counted, end, shares, counts }
    }

    pub(crate) fn granted(&self, task: u32, requested: Moment, had: Moment) {
        if requested < self.counted || had >= self.end {
            return;
        }
        if let Some(share) = self.shares.get(task as usize) {
            share.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(had.since(requested).as_micros()).unwrap_or(u64::MAX);
        // The histogram resizes itself, so recording does not fail.
        let _ = self.counts().waits.record(micros);
    }

    pub(crate) fn failed(&self, error: &impl Display) {
        let mut counts = self.counts();
        counts.errors += 1;
        counts.first_error.get_or_insert_with(|| format!("{error:#}"));
    }

    pub(crate) fn log(&self, refused: u64, took_ms: Option<u64>) -> Log {
        let counts = self.counts();
        let share = |grants: &AtomicU64| Share { grants: grants.load(Ordering::Relaxed), refused: 0 };
        Log {
            tasks: self.shares.iter().map(share).collect(),
            waits: Waits::from(&counts.waits),
            refused,
            errors: counts.errors,
            first_error: counts.first_error.clone(),
            took_ms,
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_grants_within_the_span_count() {
        let at = |ms| Moment::default() + Duration::from_millis(ms);
        let tally = Tally::new(&LoadJob::of_one_key(), at(100), at(200));
        for (task, requested, had) in [(0, 99, 150), (0, 100, 150), (1, 150, 199), (1, 150, 200)] {
            tally.granted(task, at(requested), at(had));
        }
        tally.failed(&"first");
        tally.failed(&"second");
        let log = tally.log(3, None);
        assert_eq!(log.tasks.iter().map(|task| task.grants).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(log.waits.pairs(), [(49_000, 1), (50_000, 1)]);
        assert_eq!((log.refused, log.errors, log.first_error.as_deref()), (3, 2, Some("first")));
    }
}
