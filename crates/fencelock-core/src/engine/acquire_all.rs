use super::{ClaimFailure, SHORTEST_WAIT};
use crate::{KeySet, Moment};
use std::time::Duration;

/// Acquires all keys of a [`KeySet`], or none of them.
///
/// It decides which key is claimed next, which keys are kept, when all are released, when to start again, and which error is the
/// result. Four rules prevent deadlocks and partly held guards:
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
/// It has no clock and sends nothing. A driver carries out each [`AcquireStep`] and reports the result. `G` is the driver's guard of a
/// key, which releases it when it is dropped, and `E` its error.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireAll<G, E> {
    keys: KeySet,
    wait: Option<Duration>,
    begun: Moment,
    /// What is held, in the order in which the caller passed the keys.
    held: Vec<Option<G>>,
    /// The keys that were busy when they were tried last, in the order in which the caller passed them.
    busy: Vec<Option<E>>,
    /// The error of the last claim.
    last: Option<E>,
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
    /// Try every key of [`AcquireAll::remaining`] at the same time, and watch the leases that are held until all are answered.
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
    /// Release every key of [`AcquireAll::take`].
    ReleaseAll,
    /// Every key is held.
    Granted,
    /// No key is held, and nothing more is claimed. Return [`AcquireAll::into_error`].
    Refused,
}

/// The result of the claim of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claimed<G, E> {
    /// It is held.
    Granted(G),
    /// It is not.
    Failed(ClaimFailure, E),
    /// The time limit has ended before.
    Unanswered,
}

impl<G, E> AcquireAll<G, E> {
    /// `wait` is the limit for all keys together: `None` has no limit, zero tries each key once.
    pub fn new(keys: KeySet, wait: Option<Duration>, now: Moment) -> Self {
        let (held, busy) = keys.keys().iter().map(|_| (None, None)).unzip();
        Self { keys, wait, begun: now, held, busy, last: None, rounds: 1, state: State::Trying }
    }

    /// The keys.
    pub const fn keys(&self) -> &KeySet {
        &self.keys
    }

    /// How long the caller has waited.
    pub fn waited(&self, now: Moment) -> Duration {
        now.since(self.begun)
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
        self.keys.claim_order().get(self.held().count()..).unwrap_or_default()
    }

    /// What is held, in the order in which the caller passed the keys.
    pub fn held(&self) -> impl Iterator<Item = &G> {
        self.held.iter().flatten()
    }

    /// The claims of [`AcquireStep::Claim`] or [`AcquireStep::TryRest`] are answered, in the order of [`AcquireAll::remaining`]. Of the
    /// keys that were tried, those after the first that was not granted are dropped.
    pub fn on_claimed(&mut self, claimed: Vec<Claimed<G, E>>, now: Moment) {
        let rest = self.remaining().to_vec();
        let (tries, mut keeps, mut refused) = (claimed.len() > 1, true, None);
        for (key, claimed) in rest.into_iter().zip(claimed) {
            match claimed {
                Claimed::Granted(guard) if keeps => {
                    (self.held[key], self.busy[key]) = (Some(guard), None);
                    continue;
                }
                Claimed::Failed(failure, error) if !tries => refused = Some((failure, error)),
                // Any other error is found again by the claim that follows. What was granted is dropped, which releases it.
                Claimed::Failed(failure, error) => {
                    self.busy[key] = Some(error).filter(|_| failure == ClaimFailure::Busy);
                }
                Claimed::Granted(_) | Claimed::Unanswered => self.busy[key] = None,
            }
            keeps = false;
        }
        match refused {
            Some((failure, error)) => {
                // A holder was reported before.
                let silent = failure == ClaimFailure::Silent && self.is_over(now);
                self.last = self.busy.iter_mut().find_map(|busy| busy.take_if(|_| silent)).or(Some(error));
                self.give_up(false);
            }
            None if tries => self.state = State::Claiming,
            None => self.state = State::Trying,
        }
    }

    /// A lease that is held was lost, and the claims in flight were cancelled. After a refusal, that changes nothing.
    pub fn on_lost(&mut self, loss: E, now: Moment) {
        if matches!(self.state, State::Trying | State::Claiming) {
            self.last = Some(loss);
            self.give_up(!self.is_over(now));
        }
    }

    /// What is held, in the order in which the caller passed the keys. The driver keeps it, or releases it and calls
    /// [`AcquireAll::on_released`].
    pub fn take(&mut self) -> Vec<G> {
        self.held.iter_mut().filter_map(Option::take).collect()
    }

    /// Every key has been released.
    pub fn on_released(&mut self) {
        let State::Releasing { again } = self.state else { return };
        self.held.fill_with(|| None);
        if again {
            self.rounds = self.rounds.saturating_add(1);
            self.state = State::Trying;
        } else {
            self.state = State::Refused;
        }
    }

    /// The error to return, and the number of earlier rounds.
    pub fn into_error(self) -> Option<(E, u32)> {
        self.last.map(|last| (last, self.rounds - 1))
    }

    fn give_up(&mut self, again: bool) {
        self.state = State::Releasing { again };
        if self.held().count() == 0 {
            self.on_released();
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        self.wait.is_some_and(|wait| now >= self.begun + wait)
    }

    fn rest(&self, now: Moment) -> Option<Duration> {
        let wait = self.wait?;
        Some(if wait.is_zero() { wait } else { (self.begun + wait).since(now).max(SHORTEST_WAIT.min(wait)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClaimFailure::{Busy, NotServing, Refused, Silent};

    const START: Moment = Moment::from_micros(1_000_000);
    const GRANTED: Claimed<char, &str> = Claimed::Granted('g');
    const BUSY: Claimed<char, &str> = Claimed::Failed(Busy, "busy");

    type All = AcquireAll<char, &'static str>;

    fn acquire(wait: Option<Duration>) -> All {
        AcquireAll::new(KeySet::new(["b", "a"]).unwrap(), wait, START)
    }

    /// Nothing was free.
    fn acquire_tried(wait: Option<Duration>) -> All {
        let mut all = acquire(wait);
        all.on_claimed(vec![BUSY, BUSY], START);
        all
    }

    fn held(all: &All) -> Vec<char> {
        all.held().copied().collect()
    }

    fn granted(all: &mut All, guard: char) {
        all.on_claimed(vec![Claimed::Granted(guard)], START);
    }

    /// The wait of an acquisition, and its end.
    const LIMIT: Option<Duration> = Some(Duration::from_secs(5));
    const END: Moment = Moment::from_micros(6_000_000);

    const fn claim(key: usize, wait: Option<Duration>) -> AcquireStep {
        AcquireStep::Claim { key, wait }
    }

    const TRY: AcquireStep = AcquireStep::TryRest { within: None };

    #[test]
    fn free_keys_are_acquired_at_once_and_returned_in_the_order_of_the_caller() {
        let mut all = acquire(None);
        assert_eq!((all.step(START), all.remaining()), (TRY, [1, 0].as_slice()));
        all.on_claimed(vec![Claimed::Granted('a'), Claimed::Granted('b')], START);
        assert_eq!((all.step(START), held(&all)), (AcquireStep::Granted, vec!['b', 'a']));
        assert_eq!(all.take(), ['b', 'a']);
    }

    #[test]
    fn the_rest_is_tried_before_and_after_each_wait() {
        let mut all = All::new(KeySet::new(["a", "b", "c", "d"]).unwrap(), None, START);
        all.on_claimed(vec![Claimed::Granted('1'), BUSY, Claimed::Granted('x'), Claimed::Unanswered], START);
        assert_eq!((all.step(START), held(&all)), (claim(1, None), vec!['1']), "the first that was refused");
        granted(&mut all, '2');
        assert_eq!((all.step(START), all.remaining()), (TRY, [2, 3].as_slice()));
        all.on_claimed(vec![BUSY, BUSY], START);
        assert_eq!(all.step(START), claim(2, None));
        granted(&mut all, '3');
        assert_eq!(all.step(START), claim(3, None), "a single key needs no try");
    }

    #[test]
    fn a_try_ends_with_the_wait() {
        let all = acquire(LIMIT);
        assert_eq!(all.step(START), AcquireStep::TryRest { within: LIMIT });
        let later = START + Duration::from_secs(2);
        assert_eq!(
            (all.step(later), all.waited(later)),
            (AcquireStep::TryRest { within: Some(Duration::from_secs(3)) }, Duration::from_secs(2))
        );
    }

    #[test]
    fn the_keys_are_claimed_in_order_and_then_all_are_held() {
        let mut all = acquire_tried(None);
        assert_eq!(all.step(START), claim(1, None));
        granted(&mut all, 'a');
        assert_eq!(all.step(START), claim(0, None));
        granted(&mut all, 'b');
        assert_eq!(all.step(START), AcquireStep::Granted);
    }

    #[test]
    fn the_wait_is_for_all_keys_together() {
        let mut all = acquire_tried(LIMIT);
        assert_eq!(all.step(START), claim(1, LIMIT));
        granted(&mut all, 'a');
        let later = START + Duration::from_secs(3);
        assert_eq!(all.step(later), claim(0, Some(Duration::from_secs(2))));
        assert_eq!(all.step(later + Duration::from_secs(9)), claim(0, Some(SHORTEST_WAIT)));
    }

    #[test]
    fn a_wait_of_zero_asks_for_each_key_once() {
        let mut all = acquire(Some(Duration::ZERO));
        assert_eq!(all.step(START), claim(1, Some(Duration::ZERO)), "one after another");
        granted(&mut all, 'a');
        assert_eq!(all.step(START + Duration::from_secs(1)), claim(0, Some(Duration::ZERO)));
        all.on_lost("lost", START);
        all.on_released();
        assert_eq!(all.step(START), AcquireStep::Refused, "a second round would claim twice");
        assert_eq!(all.into_error(), Some(("lost", 0)));
    }

    #[test]
    fn a_refused_claim_gives_everything_back() {
        let mut all = acquire(None);
        granted(&mut all, 'a');
        all.on_claimed(vec![Claimed::Failed(Refused, "refused")], START);
        all.on_lost("a was lost meanwhile", START);
        assert_eq!((all.step(START), all.take()), (AcquireStep::ReleaseAll, vec!['a']));
        all.on_released();
        assert_eq!((all.step(START), all.into_error()), (AcquireStep::Refused, Some(("refused", 0))));
        let mut all = acquire_tried(None);
        all.on_claimed(vec![BUSY], START);
        assert_eq!(all.step(START), AcquireStep::Refused, "nothing was held");
    }

    #[test]
    fn a_lost_lease_begins_a_new_round_within_the_wait() {
        let mut all = acquire(LIMIT);
        granted(&mut all, 'a');
        all.on_lost("lost", START + Duration::from_secs(1));
        assert_eq!(all.step(START), AcquireStep::ReleaseAll);
        all.on_released();
        assert_eq!(
            all.step(START + Duration::from_secs(1)),
            AcquireStep::TryRest { within: Some(Duration::from_secs(4)) }
        );
        assert_eq!((all.rounds(), all.remaining().len()), (2, 2));
        granted(&mut all, 'a');
        all.on_lost("lost again", END);
        all.on_released();
        assert_eq!(all.step(START), AcquireStep::Refused, "the wait is over");
        assert_eq!(all.into_error(), Some(("lost again", 1)));
    }

    #[test]
    fn a_loss_found_with_the_last_grant_is_no_success() {
        let mut all = acquire(None);
        all.on_claimed(vec![GRANTED, GRANTED], START);
        all.on_lost("lost", START);
        assert_eq!(all.step(START), AcquireStep::ReleaseAll);
        all.on_released();
        assert_eq!(all.step(START), TRY);
    }

    #[test]
    fn a_holder_that_was_reported_before_is_a_better_answer_than_none_at_the_end() {
        for (failure, now, last) in [(Silent, END, "busy"), (NotServing, END, "new"), (Silent, START, "new")] {
            let mut all = acquire(LIMIT);
            all.on_claimed(vec![BUSY, Claimed::Failed(Silent, "silent")], START);
            all.on_claimed(vec![Claimed::Failed(failure, "new")], now);
            assert_eq!(all.into_error(), Some((last, 0)), "{failure:?} at {now:?}");
        }
        let mut all = acquire(LIMIT);
        all.on_claimed(vec![Claimed::Unanswered, Claimed::Unanswered], START);
        all.on_claimed(vec![Claimed::Failed(Silent, "new")], END);
        assert_eq!(all.into_error(), Some(("new", 0)), "no holder was reported");
        let mut all = acquire(LIMIT);
        all.on_claimed(vec![BUSY, Claimed::Unanswered], START);
        granted(&mut all, 'a');
        all.on_claimed(vec![Claimed::Failed(Silent, "new")], END);
        assert_eq!(all.into_error(), Some(("new", 0)), "that holder has released its key");
    }
}
