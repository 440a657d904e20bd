use super::SHORTEST_WAIT;
use crate::Moment;
use std::time::Duration;

/// How long a caller waits for several claims together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimit {
    begun: Moment,
    limit: Option<Duration>,
}

impl WaitLimit {
    /// `None` has no limit; zero tries once, however long that takes.
    pub const fn new(limit: Option<Duration>, now: Moment) -> Self {
        Self { begun: now, limit }
    }

    /// Whether nothing is waited for.
    pub fn is_try(self) -> bool {
        self.limit == Some(Duration::ZERO)
    }

    /// How long the caller has waited.
    pub fn waited(self, now: Moment) -> Duration {
        now.since(self.begun)
    }

    /// When the wait is over. A try has no end.
    pub fn end(self) -> Moment {
        self.limit.filter(|limit| !limit.is_zero()).map_or(Moment::NEVER, |limit| self.begun + limit)
    }

    /// Whether the wait is over.
    pub fn is_over(self, now: Moment) -> bool {
        now >= self.end()
    }

    /// Whether all keys are claimed again after one of them was lost. A second round would try twice.
    pub fn allows_another_round(self, now: Moment) -> bool {
        !self.is_try() && !self.is_over(now)
    }

    /// How long the next claim may wait. At the end of the wait, it still asks once.
    pub fn left(self, now: Moment) -> Option<Duration> {
        self.limit.map(|limit| (self.begun + limit).since(now).max(SHORTEST_WAIT.min(limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_micros(1_000_000);

    #[test]
    fn a_wait_is_for_all_claims_together() {
        let limit = Duration::from_secs(5);
        let wait = WaitLimit::new(Some(limit), START);
        let (later, end) = (START + Duration::from_secs(3), START + limit);
        assert_eq!((wait.left(START), wait.left(later)), (Some(limit), Some(Duration::from_secs(2))));
        assert_eq!((wait.left(end + limit), wait.end()), (Some(SHORTEST_WAIT), end));
        assert_eq!((wait.waited(later), wait.is_try()), (Duration::from_secs(3), false));
        assert!(!wait.is_over(later) && wait.is_over(end));
        assert!(wait.allows_another_round(later) && !wait.allows_another_round(end));
    }

    #[test]
    fn a_try_and_a_wait_without_a_limit_have_no_end() {
        for (limit, is_try) in [(Some(Duration::ZERO), true), (None, false)] {
            let wait = WaitLimit::new(limit, START);
            let later = START + Duration::from_secs(3);
            assert_eq!((wait.left(later), wait.end(), wait.is_try()), (limit, Moment::NEVER, is_try));
            assert_eq!((wait.is_over(later), wait.allows_another_round(later)), (false, !is_try));
        }
    }
}
