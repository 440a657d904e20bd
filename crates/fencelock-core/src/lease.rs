use crate::{Drift, Moment};
use std::time::Duration;

/// Until when a holder may assume that it holds a lock.
///
/// It is created in two ways only, both from the time just *before* the request was sent: the TTL at the server starts later,
/// when the request arrives, so it also ends later. Counting from the reply would add the time of the reply.
///
/// Source: "Distributed Locks with Redis" in the Redis documentation (`MIN_VALIDITY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    until: Moment,
}

impl Lease {
    /// A lease of `ttl` whose request was sent at `sent`.
    pub fn granted(sent: Moment, ttl: Duration, drift: Drift) -> Self {
        Self { until: sent + ttl.saturating_sub(drift.of(ttl)) }
    }

    /// A hold that ends only by its release or with its process.
    pub const fn endless() -> Self {
        Self { until: Moment::NEVER }
    }

    /// The end. From here on the lease is lost, regardless of later replies.
    pub const fn until(self) -> Moment {
        self.until
    }

    /// Whether the lease has ended.
    pub fn lapsed(self, now: Moment) -> bool {
        now >= self.until
    }

    /// The remaining time; zero after the end, [`Duration::MAX`] if it never ends.
    pub fn remaining(self, now: Moment) -> Duration {
        self.until.since(now)
    }

    /// The lease after a renewal that was sent at `sent` for `ttl` and answered at `now`.
    ///
    /// `None` if this lease had ended by `now`: in between, another client may have held the key and released it, so a
    /// late confirmation proves nothing about the whole interval. A renewal never shortens a lease.
    #[must_use]
    pub fn renewed(self, sent: Moment, ttl: Duration, drift: Drift, now: Moment) -> Option<Self> {
        if self.lapsed(now) {
            return None;
        }
        Some(Self { until: self.until.max(Self::granted(sent, ttl, drift).until) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    fn ten_seconds(sent: u64) -> Lease {
        Lease::granted(at(sent), Duration::from_secs(10), Drift::default())
    }

    #[test]
    fn validity_counts_from_the_sending_less_the_drift() {
        assert_eq!(ten_seconds(SECOND).until(), at(SECOND + 9_898_000));
    }

    #[test]
    fn a_reply_after_the_ttl_grants_nothing() {
        assert!(ten_seconds(0).lapsed(at(9_898_000)));
        assert_eq!(ten_seconds(0).remaining(at(99 * SECOND)), Duration::ZERO);
    }

    #[test]
    fn a_lapsed_lease_is_never_revived() {
        let lease = ten_seconds(0);
        assert_eq!(
            lease.renewed(at(SECOND), Duration::from_secs(10), Drift::default(), lease.until()),
            None,
            "the very end counts as lapsed"
        );
    }

    #[test]
    fn a_renewal_never_shortens() {
        let lease = ten_seconds(5 * SECOND);
        let renewed = lease.renewed(at(0), Duration::from_secs(1), Drift::default(), at(6 * SECOND));
        assert_eq!(renewed, Some(lease));
    }

    #[test]
    fn five_renewals_of_ten_seconds_leave_at_most_ten_seconds() {
        let mut lease = ten_seconds(0);
        for _ in 0..5 {
            lease = lease.renewed(at(SECOND), Duration::from_secs(10), Drift::default(), at(SECOND)).unwrap();
        }
        assert!(lease.remaining(at(SECOND)) < Duration::from_secs(10));
    }

    #[test]
    fn a_ttl_eaten_by_drift_is_lapsed_at_once() {
        assert!(Lease::granted(at(7), Duration::from_millis(1), Drift::default()).lapsed(at(7)));
    }

    #[test]
    fn an_endless_hold_stays() {
        assert!(!Lease::endless().lapsed(at(u64::MAX - 1)));
        assert_eq!(Lease::endless().remaining(at(0)), Duration::MAX);
    }
}
