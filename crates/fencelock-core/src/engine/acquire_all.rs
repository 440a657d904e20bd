use crate::{KeySet, Moment};
use std::time::Duration;

/// The minimum wait of a claim that queues: a claim with a wait of zero would try once and not enter the queue.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Acquires all keys of a [`KeySet`], or none of them.
///
/// It decides which key is claimed next, when all keys are released, and when to start again. Four rules prevent deadlocks
/// and partly held guards:
///
/// - A claim that waits is sent when all earlier keys are held and no later one is, in the same order by all clients. It waits
///   in the queue of its own key.
/// - Before a claim waits, the keys that are not held are tried at the same time, so that free keys cost one round trip. Of the
///   keys that are granted, those before the first refused one are kept. The others are released: a client that waited for a
///   key and held a later one could deadlock.
/// - While a claim is not answered, the leases already held are watched. If one is lost, the claim is cancelled, all keys are
///   released, and the first key is claimed again if the wait is not over.
/// - A claim that is refused releases all keys.
///
/// An acquisition that does not wait claims one key after another. Then one of several clients that try the same keys at the
/// same time always succeeds.
///
/// It has no clock and sends nothing. A driver carries out each [`AcquireStep`] and reports the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireAll {
    keys: KeySet,
    wait: Option<Duration>,
    until: Option<Moment>,
    /// The number of keys held, in the order of claims.
    held: usize,
    rounds: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    /// All remaining keys are tried, if there are several.
    Trying,
    Claiming,
    Releasing {
        again: bool,
    },
    Refused,
}

/// What a driver must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AcquireStep {
    /// Try every key that is not held, at the same time, and watch the leases that are held until all are answered. Keep the
    /// keys that are granted before the first refused one in [`KeySet::claim_order`], and release the others.
    TryRest {
        /// The time limit.
        within: Option<Duration>,
    },
    /// Claim the key at this position of [`KeySet::keys`], and watch the leases that are held until it is answered.
    Claim {
        /// The index of the key.
        key: usize,
        /// How long to wait for it; `None` has no limit, zero tries once.
        wait: Option<Duration>,
    },
    /// Release every key that is held.
    ReleaseAll,
    /// Every key is held.
    Granted,
    /// No key is held, and nothing more is claimed. Return the last error.
    Refused,
}

impl AcquireAll {
    /// `wait` is the limit for all keys together: `None` has no limit, zero tries each key once.
    pub fn new(keys: KeySet, wait: Option<Duration>, now: Moment) -> Self {
        let until = wait.map(|wait| now + wait);
        Self { keys, wait, until, held: 0, rounds: 1, state: State::Trying }
    }

    /// The keys.
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// Whether the wait is over.
    pub fn is_over(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// The number of claims of the first key.
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The next step.
    pub fn step(&self, now: Moment) -> AcquireStep {
        match (self.state, self.remaining()) {
            (State::Trying | State::Claiming, []) => AcquireStep::Granted,
            (State::Trying, [_, _, ..]) if !self.wait.is_some_and(|wait| wait.is_zero()) => {
                AcquireStep::TryRest { within: self.rest(now) }
            }
            (State::Trying | State::Claiming, [key, ..]) => AcquireStep::Claim { key: *key, wait: self.rest(now) },
            (State::Releasing { .. }, _) => AcquireStep::ReleaseAll,
            (State::Refused, _) => AcquireStep::Refused,
        }
    }

    /// The keys that are not held, in the order of claims.
    pub fn remaining(&self) -> &[usize] {
        self.keys.claim_order().get(self.held..).unwrap_or_default()
    }

    /// The claim was granted.
    pub const fn on_granted(&mut self) {
        self.held += 1;
        self.state = State::Trying;
    }

    /// All keys have been tried. This many of [`AcquireAll::remaining`] are kept; the others are not held.
    pub const fn on_tried(&mut self, kept: usize) {
        self.held += kept;
        self.state = State::Claiming;
    }

    /// The claim was refused: the key is busy, or the backend did not answer.
    pub const fn on_refused(&mut self) {
        self.give_up(false);
    }

    /// A lease that is held was lost, and the claim of the next key was cancelled.
    pub fn on_lost(&mut self, now: Moment) {
        self.give_up(!self.is_over(now));
    }

    /// Every key has been released.
    pub const fn on_released(&mut self) {
        let State::Releasing { again } = self.state else { return };
        self.held = 0;
        if again {
            self.rounds = self.rounds.saturating_add(1);
            self.state = State::Trying;
        } else {
            self.state = State::Refused;
        }
    }

    const fn give_up(&mut self, again: bool) {
        self.state = State::Releasing { again };
        if self.held == 0 {
            self.on_released();
        }
    }

    fn rest(&self, now: Moment) -> Option<Duration> {
        let (wait, until) = (self.wait?, self.until?);
        Some(if wait.is_zero() { wait } else { until.since(now).max(SHORTEST_WAIT.min(wait)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_micros(1_000_000);

    fn acquire(wait: Option<Duration>) -> AcquireAll {
        AcquireAll::new(KeySet::new(["b", "a"]).unwrap(), wait, START)
    }

    /// Nothing was free.
    fn acquire_tried(wait: Option<Duration>) -> AcquireAll {
        let mut all = acquire(wait);
        all.on_tried(0);
        all
    }

    const fn claim(key: usize, wait: Option<Duration>) -> AcquireStep {
        AcquireStep::Claim { key, wait }
    }

    const TRY: AcquireStep = AcquireStep::TryRest { within: None };

    #[test]
    fn free_keys_are_acquired_at_once() {
        let mut all = acquire(None);
        assert_eq!((all.step(START), all.remaining()), (TRY, [1, 0].as_slice()));
        all.on_tried(2);
        assert_eq!(all.step(START), AcquireStep::Granted);
    }

    #[test]
    fn the_rest_is_tried_before_and_after_each_wait() {
        let mut all = AcquireAll::new(KeySet::new(["a", "b", "c", "d"]).unwrap(), None, START);
        all.on_tried(1);
        assert_eq!(all.step(START), claim(1, None), "the first key that was refused");
        all.on_granted();
        assert_eq!((all.step(START), all.remaining()), (TRY, [2, 3].as_slice()));
        all.on_tried(0);
        assert_eq!(all.step(START), claim(2, None));
        all.on_granted();
        assert_eq!(all.step(START), claim(3, None), "a single key needs no try");
    }

    #[test]
    fn a_try_ends_with_the_wait() {
        let all = acquire(Some(Duration::from_secs(5)));
        let within = |seconds| AcquireStep::TryRest { within: Some(Duration::from_secs(seconds)) };
        assert_eq!(all.step(START), within(5));
        assert_eq!(all.step(START + Duration::from_secs(2)), within(3));
    }

    #[test]
    fn the_keys_are_claimed_in_order_and_then_all_are_held() {
        let mut all = acquire_tried(None);
        assert_eq!(all.step(START), claim(1, None));
        all.on_granted();
        assert_eq!(all.step(START), claim(0, None));
        all.on_granted();
        assert_eq!(all.step(START), AcquireStep::Granted);
    }

    #[test]
    fn the_wait_is_for_all_keys_together() {
        let mut all = acquire_tried(Some(Duration::from_secs(5)));
        assert_eq!(all.step(START), claim(1, Some(Duration::from_secs(5))));
        all.on_granted();
        let later = START + Duration::from_secs(3);
        assert_eq!(all.step(later), claim(0, Some(Duration::from_secs(2))));
        assert_eq!(all.step(later + Duration::from_secs(9)), claim(0, Some(SHORTEST_WAIT)));
    }

    #[test]
    fn a_wait_of_zero_asks_for_each_key_once() {
        let mut all = acquire(Some(Duration::ZERO));
        assert_eq!(all.step(START), claim(1, Some(Duration::ZERO)), "one after another");
        all.on_granted();
        assert_eq!(all.step(START + Duration::from_secs(1)), claim(0, Some(Duration::ZERO)));
        all.on_lost(START);
        all.on_released();
        assert_eq!(all.step(START), AcquireStep::Refused, "a second round would claim twice");
    }

    #[test]
    fn a_refused_claim_gives_everything_back() {
        let mut all = acquire(None);
        all.on_granted();
        all.on_refused();
        assert_eq!(all.step(START), AcquireStep::ReleaseAll);
        all.on_released();
        assert_eq!(all.step(START), AcquireStep::Refused);
        let mut all = acquire(None);
        all.on_refused();
        assert_eq!(all.step(START), AcquireStep::Refused, "nothing was held");
    }

    #[test]
    fn a_lost_lease_begins_a_new_round_within_the_wait() {
        let mut all = acquire(Some(Duration::from_secs(5)));
        all.on_granted();
        all.on_lost(START + Duration::from_secs(1));
        assert_eq!(all.step(START), AcquireStep::ReleaseAll);
        all.on_released();
        assert_eq!(
            all.step(START + Duration::from_secs(1)),
            AcquireStep::TryRest { within: Some(Duration::from_secs(4)) }
        );
        assert_eq!((all.rounds(), all.remaining().len()), (2, 2));
        all.on_granted();
        all.on_lost(START + Duration::from_secs(5));
        all.on_released();
        assert_eq!(all.step(START), AcquireStep::Refused, "the wait is over");
    }

    #[test]
    fn a_loss_found_with_the_last_grant_is_no_success() {
        let mut all = acquire(None);
        all.on_granted();
        all.on_granted();
        all.on_lost(START);
        assert_eq!(all.step(START), AcquireStep::ReleaseAll);
        all.on_released();
        assert_eq!(all.step(START), TRY);
    }
}
