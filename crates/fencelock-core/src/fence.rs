use crate::Invalid;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

/// A number that grows with every grant of a key: the part of a lock that a paused holder cannot break.
///
/// Send it along with every write to what the lock protects, and let the receiver refuse a token smaller than the
/// greatest it has seen. Then a holder that slept through the end of its lease can do no harm.
///
/// It is a count of microseconds, from 1 to 2^53 - 1, so that Lua, JavaScript and a double hold it exactly. It is close to the time
/// of the grant, but nothing may rest on that: only the order is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The greatest integer that a double counts up to without a gap; as microseconds since 1970 it is in the year 2255.
    pub const MAX: u64 = (1 << 53) - 1;

    /// # Errors
    /// [`Invalid`] for zero and above [`FencingToken::MAX`].
    pub fn new(value: u64) -> Result<Self, Invalid> {
        NonZeroU64::new(value)
            .filter(|v| v.get() <= Self::MAX)
            .map(Self)
            .ok_or_else(|| Invalid::new(format!("a fencing token lies between 1 and 2^53 - 1; {value} does not")))
    }

    /// The number to send with a write.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for FencingToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let value = text.parse().map_err(|_| Invalid::new(format!("a fencing token is a number, not {text:?}")))?;
        Self::new(value)
    }
}

/// How far a token may lie from the node's own clock.
pub(crate) const CLAMP: Duration = Duration::from_secs(1);

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The fence of the next grant on one node: `max(previous + 1, clamp(proposal, node time +- 1 s))`.
///
/// `previous + 1` alone would restart at 1 on a node that forgot its counter; the time alone would repeat within one
/// microsecond or when a clock steps back. Together they grow through both. The clamp keeps one client with a clock in
/// the far future from pushing the fence ahead of everybody's time. Without a node clock (`None`) there is no clamp.
pub fn next_fence(previous: u64, proposal: u64, node_micros: Option<u64>) -> Result<FencingToken, Invalid> {
    crate::next_block(previous, proposal, node_micros, NonZeroU32::MIN).map(crate::TokenBlock::last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_780_000_000_000_000;

    #[test]
    fn a_fresh_node_starts_at_its_time() {
        assert_eq!(next_fence(0, NOW, Some(NOW)).unwrap().get(), NOW);
    }

    #[test]
    fn a_client_in_the_future_or_the_past_is_clamped_to_a_second() {
        assert_eq!(next_fence(0, u64::MAX, Some(NOW)).unwrap().get(), NOW + 1_000_000);
        assert_eq!(next_fence(0, 1, Some(NOW)).unwrap().get(), NOW - 1_000_000);
    }

    #[test]
    fn a_clock_that_steps_back_cannot_lower_the_fence() {
        assert_eq!(next_fence(NOW, NOW - 5_000_000, Some(NOW - 5_000_000)).unwrap().get(), NOW + 1);
    }

    #[test]
    fn without_a_node_clock_the_proposal_stands() {
        assert_eq!(next_fence(0, 17, None).unwrap().get(), 17);
    }

    #[test]
    fn the_end_of_the_numbers_is_an_error_not_a_wrap() {
        assert!(next_fence(FencingToken::MAX, 0, Some(0)).is_err());
        assert!(next_fence(u64::MAX, 0, None).is_err());
    }

    proptest! {
        #[test]
        fn the_next_fence_is_always_greater(previous in 0..FencingToken::MAX, p: u64, now in 0..FencingToken::MAX / 2) {
            let next = next_fence(previous, p, Some(now)).unwrap();
            prop_assert!(next.get() > previous);
            prop_assert!(next.get() <= (previous + 1).max(now + 1_000_000));
        }
    }
}
