use fencelock::backends::TokioClock;
use fencelock::{Clock, Moment};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tokio::time::Instant;

/// Start of the wall clocks, in microseconds since 1970.
const WALL_US: i64 = 1_790_000_000_000_000;

/// The clocks of one machine.
#[derive(Debug)]
pub(super) struct SimClock {
    start: Instant,
    /// How much faster they run than true time, in parts per million.
    ppm: i64,
    /// How far the wall clock was off at the start, with all its steps since.
    offset_us: AtomicI64,
}

impl SimClock {
    pub(super) fn new(offset_us: i64, ppm: i64) -> Self {
        Self { start: Instant::now(), ppm, offset_us: AtomicI64::new(offset_us) }
    }

    fn elapsed_us(&self) -> i64 {
        let true_us = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        true_us + (true_us / 1000 * self.ppm).div_euclid(1000)
    }

    /// Steps the wall clock.
    pub(super) fn jump(&self, by_us: i64) {
        self.offset_us.fetch_add(by_us, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment::from_micros(3_600_000_000_u64.saturating_add_signed(self.elapsed_us()))
    }

    fn wall_micros(&self) -> u64 {
        let wall_us = WALL_US + self.offset_us.load(Ordering::Relaxed) + self.elapsed_us();
        wall_us.unsigned_abs()
    }
}

/// The clock of the history. No two readings are equal, so the order of the lines is that of the events.
#[derive(Debug)]
pub(super) struct HistoryClock {
    clock: TokioClock,
    last_us: AtomicU64,
}

impl HistoryClock {
    pub(super) fn new() -> Self {
        Self { clock: TokioClock::starting_now(), last_us: AtomicU64::new(0) }
    }
}

impl Clock for HistoryClock {
    fn now(&self) -> Moment {
        let next_us = self.last_us.load(Ordering::Relaxed).saturating_add(1).max(self.clock.now().as_micros());
        self.last_us.store(next_us, Ordering::Relaxed);
        Moment::from_micros(next_us)
    }

    fn wall_micros(&self) -> u64 {
        self.now().as_micros()
    }
}
