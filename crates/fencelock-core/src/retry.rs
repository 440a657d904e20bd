use crate::Expiry;
use std::time::Duration;

/// `span` minus up to a tenth, chosen by `random`: the jitter separates waiters that started together.
pub fn jitter(span: Duration, random: u64) -> Duration {
    let tenth = u64::try_from(span.as_micros() / 10).unwrap_or(u64::MAX);
    let less = random % tenth.saturating_add(1);
    span.saturating_sub(Duration::from_micros(less))
}

/// The pauses between the polls of a waiter that is not woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPlan {
    /// The first pause without wake-ups; each further one is half as long again.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl RetryPlan {
    /// With wake-ups: polls only keep the waiter alive and replace lost messages.
    pub const WOKEN: Self = Self { first: Duration::from_secs(1), longest: Duration::from_secs(1) };
    /// Without wake-ups: fast at first, then at least four times a second.
    pub const BLIND: Self = Self { first: Duration::from_millis(2), longest: Duration::from_millis(250) };

    /// From `first`, at least 1 ms, up to `longest`: how a backend wants to be polled.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let first = first.max(Duration::from_millis(1));
        Self { first, longest: longest.max(first) }
    }

    /// How long a client leaves the key free for others that poll like this, once it has had the key for as long.
    pub(crate) fn yields(self) -> Duration {
        // Those that poll often have begun at a few milliseconds, and most waits are short.
        const BLIND: Duration = Duration::from_millis(4);
        if self.longest <= Self::BLIND.longest { BLIND } else { self.longest / 2 }
    }

    /// A constant pause, minus the jitter.
    pub const fn every(pause: Duration) -> Self {
        Self { first: pause, longest: pause }
    }

    /// The pause after `attempts` earlier polls, when the lease of the holder ends after `expiry`.
    ///
    /// The waiter polls right after the end of the lease; 1 ms more lets the server expire it too. A holder without
    /// an expiry gives no such time.
    pub fn pause(self, attempts: u32, expiry: Expiry, random: u64) -> Duration {
        let mut pause = self.first;
        for _ in 0..attempts.min(64) {
            pause = pause.saturating_add(pause / 2).min(self.longest);
        }
        let pause = jitter(pause.min(self.longest), random);
        match expiry {
            Expiry::In(left) => pause.min(left.saturating_add(Duration::from_millis(1))),
            Expiry::Never => pause,
        }
    }
}

/// [`RetryPlan::BLIND`].
impl Default for RetryPlan {
    fn default() -> Self {
        Self::BLIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_woken_waiter_polls_at_the_end_of_the_holders_lease_or_after_a_second() {
        assert_eq!(RetryPlan::WOKEN.pause(0, Expiry::In(ms(300)), 0), ms(301));
        assert_eq!(RetryPlan::WOKEN.pause(7, Expiry::In(ms(30_000)), 0), ms(1000));
    }

    #[test]
    fn a_holder_without_expiry_does_not_make_a_waiter_spin() {
        assert!(RetryPlan::WOKEN.pause(0, Expiry::Never, u64::MAX) >= ms(900));
    }

    #[test]
    fn a_blind_waiter_slows_down_to_four_times_a_second() {
        assert_eq!(RetryPlan::BLIND.pause(0, Expiry::Never, 0), ms(2));
        assert_eq!(RetryPlan::BLIND.pause(1, Expiry::Never, 0), ms(3));
        assert_eq!(RetryPlan::BLIND.pause(u32::MAX, Expiry::Never, 0), ms(250));
    }

    #[test]
    fn a_pause_of_zero_is_allowed_and_stays_zero() {
        assert_eq!(RetryPlan::every(Duration::ZERO).pause(3, Expiry::Never, u64::MAX), Duration::ZERO);
    }

    #[test]
    fn a_key_is_left_free_for_half_the_longest_pause_if_that_is_long() {
        assert_eq!(RetryPlan::BLIND.yields(), ms(4));
        assert_eq!(RetryPlan::new(ms(100), ms(2000)).yields(), ms(1000));
    }

    #[test]
    fn the_longest_pause_is_no_overflow() {
        let pause = RetryPlan::every(Duration::MAX).pause(3, Expiry::In(Duration::MAX), u64::MAX);
        assert!(pause >= Duration::MAX / 10 * 9, "{pause:?}");
    }

    proptest! {
        #[test]
        fn jitter_takes_at_most_a_tenth(span in 0u64..1u64 << 40, random: u64) {
            let span = Duration::from_micros(span);
            let pause = jitter(span, random);
            prop_assert!(pause <= span && pause + span / 10 >= span);
        }
    }
}
