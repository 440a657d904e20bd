use fastrand::Rng;
use std::time::Duration;

/// What is asked of a generator here, besides what it has. The same seed gives the same answers.
pub(crate) trait Luck {
    /// From 0 to `end`, without it; 0 if `end` is 0.
    fn upto(&mut self, end: u64) -> u64;
    /// Whether one of so many in a million came.
    fn chance(&mut self, ppm: u64) -> bool;
    /// From `-most` to `most`.
    fn around(&mut self, most: u64) -> i64;
    /// From one number of milliseconds to another, without it.
    fn millis(&mut self, from: u64, until: u64) -> Duration;
}

impl Luck for Rng {
    fn upto(&mut self, end: u64) -> u64 {
        self.u64(..end.max(1))
    }

    fn chance(&mut self, ppm: u64) -> bool {
        self.upto(1_000_000) < ppm
    }

    fn around(&mut self, most: u64) -> i64 {
        let most = i64::try_from(most).unwrap_or(i64::MAX / 2);
        self.i64(-most..=most)
    }

    fn millis(&mut self, from: u64, until: u64) -> Duration {
        Duration::from_millis(self.u64(from..until))
    }
}
