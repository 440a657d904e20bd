//! Scripts that are called again because one call does a limited amount of work.

use std::time::Duration;
use tokio::time::Instant;

/// The maximum number of calls of a script that has more work than one call may do: enough for 100,000 dead waiters.
const MOST_STEPS: usize = 4096;

/// The calls of such a script. The caller waits for all of them as for one request, so they end after the timeout of one.
#[derive(Debug)]
pub(super) struct Steps {
    left: usize,
    since: Option<Instant>,
}

impl Steps {
    pub(super) const NEW: Self = Self { left: MOST_STEPS, since: None };

    /// Whether there is time for another call, after one that had more work.
    pub(super) fn more(&mut self, limit: Duration) -> bool {
        self.left -= 1;
        self.left > 0 && self.since.get_or_insert_with(Instant::now).elapsed() < limit
    }
}
