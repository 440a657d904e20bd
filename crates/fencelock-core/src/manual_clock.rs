use crate::time::micros;
use crate::{Clock, Moment};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that a test advances explicitly.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicU64,
}

impl ManualClock {
    /// It stands at `start` after its own beginning.
    pub fn at(start: Duration) -> Self {
        let clock = Self::default();
        clock.advance(start);
        clock
    }

    /// Moves it forward.
    pub fn advance(&self, span: Duration) {
        self.micros.fetch_add(micros(span), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn wall_micros(&self) -> u64 {
        self.micros.load(Ordering::SeqCst)
    }
}
