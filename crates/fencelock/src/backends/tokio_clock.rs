use fencelock_core::{Clock, Moment};

/// A clock that obeys `tokio::time::pause` and `advance`, so that a test drives timers and leases as one.
///
/// It must be read inside a tokio runtime.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: tokio::time::Instant,
}

impl TokioClock {
    /// It begins at one hour, so that a test may use earlier moments, too.
    pub fn starting_now() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_micros(3_600_000_000) + self.start.elapsed()
    }

    fn wall_micros(&self) -> u64 {
        self.now().as_micros()
    }
}
