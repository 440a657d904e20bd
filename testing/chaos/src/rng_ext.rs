use fastrand::Rng;
use std::time::Duration;

/// Additional methods of a random number generator. The same seed returns the same values.
pub(crate) trait RngExt {
    /// A number from 0 up to, but not including, `end`; 0 if `end` is 0.
    fn upto(&mut self, end: u64) -> u64;
    /// Whether an event with a probability of `ppm` in a million occurs.
    fn chance(&mut self, ppm: u64) -> bool;
    /// A number from `-most` to `most`.
    fn around(&mut self, most: u64) -> i64;
    /// A duration from `from` up to, but not including, `until`, in milliseconds.
    fn millis(&mut self, from: u64, until: u64) -> Duration;
}

impl RngExt for Rng {
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
