use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Waiting times: pairs of microseconds and their number, in ascending order.
///
/// Waits are rounded to three significant digits, so there are at most 900 pairs for each power of ten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Waits(Vec<(u64, u64)>);

impl Waits {
    /// The pairs.
    pub fn pairs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// The number of waits.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds all pairs to a histogram of microseconds that resizes itself. The pairs of another worker may have any
    /// order and any rounding.
    pub fn add_to(&self, histogram: &mut Histogram<u64>) {
        for (micros, count) in &self.0 {
            // A histogram that resizes itself accepts every value.
            let _ = histogram.record_n(*micros, *count);
        }
    }
}

impl From<&Histogram<u64>> for Waits {
    fn from(histogram: &Histogram<u64>) -> Self {
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        for value in histogram.iter_recorded() {
            let micros = three_digits(histogram.median_equivalent(value.value_iterated_to()));
            match pairs.last_mut() {
                Some((last, count)) if *last == micros => *count += value.count_at_value(),
                _ => pairs.push((micros, value.count_at_value())),
            }
        }
        Self(pairs)
    }
}

/// Rounds to three significant digits, half up.
pub(crate) fn three_digits(value: u64) -> u64 {
    let unit = 10_u64.pow(value.checked_ilog10().unwrap_or(0).saturating_sub(2));
    value.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for value in values {
            histogram.record(*value).unwrap();
        }
        histogram
    }

    #[test]
    fn waits_are_rounded_to_three_digits() {
        for (value, rounded) in [
            (0, 0),
            (7, 7),
            (999, 999),
            (1000, 1000),
            (1004, 1000),
            (1005, 1010),
            (9995, 10_000),
            (123_456, 123_000),
            (u64::MAX, 18_400_000_000_000_000_000),
        ] {
            assert_eq!(three_digits(value), rounded, "{value}");
        }
    }

    #[test]
    fn equal_waits_form_one_pair_and_all_are_counted() {
        let waits = Waits::from(&histogram(&[5, 1001, 1002, 5, 70_123, 70_012]));
        assert_eq!(waits.pairs(), [(5, 2), (1000, 2), (70_000, 1), (70_100, 1)]);
        assert_eq!(waits.count(), 6);
    }

    #[test]
    fn the_sum_of_all_workers_is_exact_to_one_percent() {
        let (one, other) = (histogram(&[10, 20, 31_234]), histogram(&[20, 2_000_000_000]));
        let mut sum = Histogram::new(3).unwrap();
        Waits::from(&one).add_to(&mut sum);
        Waits::from(&other).add_to(&mut sum);
        assert_eq!((sum.len(), sum.count_at(20)), (5, 2));
        for (quantile, value) in [(0.2, 10), (0.6, 20), (0.8, 31_234), (1.0, 2_000_000_000)] {
            let found = sum.value_at_quantile(quantile);
            assert!(found.abs_diff(value) * 100 <= value, "{quantile}: {found} for {value}");
        }
    }
}
