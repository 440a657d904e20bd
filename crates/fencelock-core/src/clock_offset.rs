use std::time::Duration;

/// How far a wall clock is from that of this process: a number and its error. There are no other fields, so the struct is
/// exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Microseconds by which it is ahead; negative if it is behind.
    pub ahead: i64,
    /// The truth is within this of it: half the time that the answer took.
    pub within: Duration,
}

impl ClockOffset {
    /// From the time that a server reported, in microseconds since 1970, and the times of this process before the request and
    /// after the reply.
    pub fn measured(before: u64, named: u64, after: u64) -> Self {
        let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
        Self {
            ahead: signed(named) - signed(before.midpoint(after)),
            within: Duration::from_micros(after.saturating_sub(before) / 2),
        }
    }

    /// The minimum difference of the two clocks, regardless of the latency of the replies.
    pub fn apart_at_least(self, other: Self) -> Duration {
        Duration::from_micros(self.ahead.abs_diff(other.ahead)).saturating_sub(self.within + other.within)
    }

    /// The minimum difference from the clock of this process.
    pub fn off_at_least(self) -> Duration {
        self.apart_at_least(Self { ahead: 0, within: Duration::ZERO })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_round_trip_is_subtracted_and_the_uncertainty_is_kept() {
        let one = ClockOffset::measured(1_000, 1_500, 2_000);
        assert_eq!((one.ahead, one.within), (0, Duration::from_micros(500)));
        let other = ClockOffset::measured(1_000, 4_500, 2_000);
        assert_eq!(one.apart_at_least(other), Duration::from_millis(2));
        assert_eq!(other.apart_at_least(one), Duration::from_millis(2));
        assert_eq!(one.apart_at_least(one), Duration::ZERO);
    }

    #[test]
    fn a_clock_that_is_behind_is_negative() {
        assert_eq!(ClockOffset::measured(9_000, 4_000, 9_000).ahead, -5_000);
    }
}
