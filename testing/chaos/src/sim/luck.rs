use crate::dice::Dice;

/// What dice are asked here.
pub(super) trait Luck {
    /// From 0 to `end`, without it; 0 if `end` is 0.
    fn upto(&mut self, end: u64) -> u64;
    /// Whether one of so many in a million came.
    fn chance(&mut self, ppm: u64) -> bool;
    /// From `-most` to `most`.
    fn around(&mut self, most: u64) -> i64;
}

impl Luck for Dice {
    fn upto(&mut self, end: u64) -> u64 {
        self.throw() % end.max(1)
    }

    fn chance(&mut self, ppm: u64) -> bool {
        self.upto(1_000_000) < ppm
    }

    fn around(&mut self, most: u64) -> i64 {
        let most = i64::try_from(most).unwrap_or(i64::MAX / 2);
        self.upto(2 * most.unsigned_abs() + 1).cast_signed() - most
    }
}
