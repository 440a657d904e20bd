//! What an observer of an election says: a pure function of what the backend has answered so far.

use crate::{Expiry, FencingToken, HolderId, Holding, Occupant, Owner, RetryPlan, Unknown};
use std::fmt;
use std::time::Duration;

/// The leader of an election, as the backend of its lock describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it has published, such as its address; `None` if nothing.
    pub value: Option<String>,
    /// Its host and process.
    pub owner: Owner,
    /// Its term: a fencing token, greater than those of all leaders before it. `None` if the backend has lost it.
    pub term: Option<FencingToken>,
    /// When its term ends unless the leader renews it.
    pub expiry: Expiry,
}

impl Leader {
    /// The leader that holds the lock of an election; `None` if another program has taken the key.
    pub fn from_holding(holding: &Holding) -> Option<Self> {
        let first = holding.first();
        let Occupant::Holder(holder) = &first.occupant else { return None };
        let (value, owner) = (holder.owner.label().map(str::to_owned), holder.owner.clone());
        Some(Self { value, owner, term: first.fence, expiry: first.expiry })
    }
}

/// `10.0.0.7:8080 on web-1:42`, `web-1:42`.
impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(value) = &self.value {
            write!(f, "{value} on ")?;
        }
        f.write_str(self.owner.process())
    }
}

/// What an observer of an election sees.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// It leads now.
    Leader(Leader),
    /// There is no leader.
    NoLeader,
    /// The backend does not answer, so the leader is unknown. The next observation says who leads when it answers again.
    Unreachable(Unknown),
}

/// The last observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Leader(HolderId),
    NoLeader,
    Unreachable,
}

/// Turns the answers of a backend into observations: one for each change, in the order of terms.
#[derive(Debug, Clone)]
pub struct LeaderHistory {
    last: Last,
    /// The holder of the newest term, which may be unknown.
    newest: Option<HolderId>,
    term: Option<FencingToken>,
    /// The term of `newest` is over.
    ended: bool,
    /// How long to wait for a hint before the next request.
    pause: Duration,
    polls: RetryPlan,
}

/// An observer inspects the key this often, also without a hint, unless its backend wants to be asked less often.
const POLL: Duration = Duration::from_secs(1);
/// No backend gives a hint when a free key is taken. A successor mostly comes soon, so the first requests follow quickly.
const FIRST_POLL: Duration = Duration::from_millis(20);
/// A lease that ends has ended for the backend this much later.
const GRAIN: Duration = Duration::from_millis(1);

impl LeaderHistory {
    /// For a backend that is polled like this.
    pub fn new(polls: RetryPlan) -> Self {
        let polls = if polls.longest > POLL { polls } else { RetryPlan::new(FIRST_POLL, POLL) };
        Self { last: Last::Nothing, newest: None, term: None, ended: false, pause: polls.first, polls }
    }

    /// How long to wait for a hint before the next request.
    pub const fn pause(&self) -> Duration {
        self.pause
    }

    /// Says what an answer has changed, if anything.
    pub fn on_answer(&mut self, answer: Result<Option<&Holding>, Unknown>) -> Option<Observation> {
        let holding = match answer {
            Ok(holding) => holding,
            Err(cause) => return self.unreachable(cause),
        };
        let leader = holding.and_then(|holding| Some((holding.first().holder_id()?, Leader::from_holding(holding)?)));
        match leader {
            Some((holder, leader)) if !self.is_over(holder, leader.term) => self.leads(holder, leader),
            // The holder of an older term does not lead: receivers that know the newer term refuse it.
            Some(_) => self.no_leader(),
            None => {
                self.ended = true;
                self.no_leader()
            }
        }
    }

    /// Whether a later term is known, or the end of this one. So the answer is old, or the backend has lost its tokens.
    fn is_over(&self, holder: HolderId, term: Option<FencingToken>) -> bool {
        if self.newest == Some(holder) {
            return self.ended;
        }
        self.term.zip(term).is_some_and(|(newest, term)| term <= newest)
    }

    fn leads(&mut self, holder: HolderId, mut leader: Leader) -> Option<Observation> {
        let known = self.newest == Some(holder);
        // A quorum may fail to report the term of a leader that it reported before.
        leader.term = leader.term.or_else(|| self.term.filter(|_| known));
        let changed = self.last != Last::Leader(holder) || leader.term != self.term;
        (self.last, self.newest, self.ended) = (Last::Leader(holder), Some(holder), false);
        // A leader without a known term does not make the terms before it forgotten.
        self.term = leader.term.or(self.term);
        self.pause = match leader.expiry {
            Expiry::In(left) => (left + GRAIN).clamp(self.polls.first, self.polls.longest),
            Expiry::Never => self.polls.longest,
        };
        changed.then_some(Observation::Leader(leader))
    }

    fn no_leader(&mut self) -> Option<Observation> {
        if self.last == Last::NoLeader {
            self.pause = (self.pause * 2).min(self.polls.longest);
            return None;
        }
        (self.last, self.pause) = (Last::NoLeader, self.polls.first);
        Some(Observation::NoLeader)
    }

    fn unreachable(&mut self, cause: Unknown) -> Option<Observation> {
        self.pause = self.polls.longest;
        let before = std::mem::replace(&mut self.last, Last::Unreachable);
        (before != Last::Unreachable).then_some(Observation::Unreachable(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Holder, HolderInfo, Key};

    fn holding(holder: u8, term: Option<u64>) -> Holding {
        let owner = Owner::new("web", 7, Some(&format!("value-{holder}"))).unwrap();
        let occupant = Occupant::Holder(Holder { id: HolderId::from_bytes([holder; 16]), owner });
        let term = term.map(|term| FencingToken::new(term).unwrap());
        Holding::new(Key::new("k").unwrap(), HolderInfo::new(occupant, Expiry::In(POLL * 9)).with_fence(term))
    }

    /// `a5` is an answer with holder a and term 5, `a?` one without the term, `.` a free key, `x` another program,
    /// `-` no answer. Gives the observations in the same form.
    fn observed(answers: &str) -> String {
        let mut history = LeaderHistory::new(RetryPlan::BLIND);
        let mut observations = Vec::new();
        for answer in answers.split(' ') {
            let seen = match answer {
                "." | "-" => None,
                "x" => Some(Holding::new(
                    Key::new("k").unwrap(),
                    HolderInfo::new(Occupant::from_wire("a value of another program"), Expiry::Never),
                )),
                _ => Some(holding(answer.as_bytes()[0], answer[1..].parse().ok())),
            };
            let silent = (answer == "-").then(|| Unknown::new("a:1", Fault::Timeout, ""));
            observations.extend(match history.on_answer(silent.map_or(Ok(seen.as_ref()), Err)) {
                None => None,
                Some(Observation::NoLeader) => Some(".".to_owned()),
                Some(Observation::Unreachable(_)) => Some("-".to_owned()),
                Some(Observation::Leader(leader)) => {
                    let holder = leader.value.unwrap()["value-".len()..].parse::<u8>().unwrap();
                    let term = leader.term.map_or("?".to_owned(), |term| term.to_string());
                    Some(format!("{}{term}", char::from(holder)))
                }
            });
        }
        observations.join(" ")
    }

    #[test]
    fn each_change_is_reported_once() {
        assert_eq!(observed(". . a1 a1 b2 . . c3 c3"), ". a1 b2 . c3");
    }

    #[test]
    fn an_older_term_is_never_reported_after_a_newer_one() {
        assert_eq!(observed("b2 a1 a1 b2"), "b2 . b2");
        assert_eq!(observed("a1 . a1 a1 b2"), "a1 . b2");
        assert_eq!(observed("b2 . a1 c2 d3"), "b2 . d3");
    }

    #[test]
    fn trouble_is_reported_once_and_then_the_leader_even_without_a_change() {
        assert_eq!(observed("- a1 - - a1 - . - b2"), "- a1 - a1 - . - b2");
    }

    #[test]
    fn an_unknown_term_is_reported_once_it_is_known() {
        assert_eq!(observed("a? a? a4 a? b? b5 c5"), "a? a4 b? b5 .");
    }

    #[test]
    fn a_key_of_another_program_has_no_leader() {
        assert_eq!(observed("x a1 x x b2"), ". a1 . b2");
    }

    #[test]
    fn a_free_key_is_inspected_less_and_less_often() {
        let mut history = LeaderHistory::new(RetryPlan::BLIND);
        let pauses = (0..8).map(|_| {
            history.on_answer(Ok(None));
            history.pause().as_millis()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [20, 40, 80, 160, 320, 640, 1000, 1000]);
        history.on_answer(Ok(Some(&holding(b'a', Some(1)))));
        assert_eq!(history.pause(), POLL);
    }

    #[test]
    fn a_backend_that_wants_to_be_asked_rarely_is() {
        let seconds = Duration::from_secs;
        let mut history = LeaderHistory::new(RetryPlan::new(seconds(2), seconds(5)));
        let pauses = (0..4).map(|_| {
            history.on_answer(Ok(None));
            history.pause().as_secs()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [2, 4, 5, 5]);
        history.on_answer(Ok(Some(&holding(b'a', Some(1)))));
        assert_eq!(history.pause(), seconds(5));
    }

    #[test]
    fn a_leader_is_shown_by_its_value_and_never_by_its_holder_id() {
        let leader = Leader::from_holding(&holding(0xab, Some(1))).unwrap();
        assert_eq!(leader.to_string(), "value-171 on web:7");
        assert!(!format!("{leader:?}").contains("abab"), "{leader:?}");
    }
}
