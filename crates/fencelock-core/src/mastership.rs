//! Which server of a Sentinel deployment is the master, and until when its leases may be trusted.
//!
//! A sentinel names a master with the *configuration epoch* in which it became one. Epochs only increase: a sentinel never
//! returns to an earlier one. Between two failovers a minority of the sentinels may name the old master, and the old master may
//! not know yet that it was replaced.

use crate::{Drift, Moment};
use std::time::Duration;

/// The master that a sentinel names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct NamedMaster<A> {
    /// Where it is.
    pub address: A,
    /// The configuration epoch in which it became the master. The same server in a later epoch may have lost grants.
    pub config_epoch: u64,
}

impl<A> NamedMaster<A> {
    /// The server at this address, which became the master in this epoch.
    pub const fn new(address: A, config_epoch: u64) -> Self {
        Self { address, config_epoch }
    }
}

/// The master that more than half of all listed sentinels name; `None` is a sentinel that did not answer.
///
/// Two majorities of one list share a sentinel, which names the master of the later epoch later. So as soon as one client has
/// found a new master by majority, no client finds the old one by majority any more.
pub fn master_by_majority<A: Eq>(answers: &[Option<NamedMaster<A>>]) -> Option<&NamedMaster<A>> {
    answers.iter().flatten().find(|named| votes_for(answers, named) * 2 > answers.len())
}

/// Every master that a sentinel names: those with most votes first, then those of later epochs.
///
/// For clients that prefer an answer to a proof. A server in this list may have been replaced.
pub fn named_masters<A: Eq>(answers: &[Option<NamedMaster<A>>]) -> Vec<&NamedMaster<A>> {
    let mut named: Vec<&NamedMaster<A>> = Vec::new();
    for master in answers.iter().flatten() {
        if !named.contains(&master) {
            named.push(master);
        }
    }
    named.sort_by_key(|master| std::cmp::Reverse((votes_for(answers, master), master.config_epoch)));
    named
}

/// The masters that a client without a quarantine may log in at, the best first.
///
/// If a majority of all listed sentinels answers, these are the ones at an address that a majority names: a minority cannot direct
/// the client, and its password, to another server. Otherwise they are all that are named.
pub fn eligible_masters<A: Eq>(answers: &[Option<NamedMaster<A>>]) -> Vec<&NamedMaster<A>> {
    let is_majority = |count: usize| count * 2 > answers.len();
    let mut named = named_masters(answers);
    if is_majority(answers.iter().flatten().count()) {
        let at = |address: &A| answers.iter().flatten().filter(|answer| answer.address == *address).count();
        named.retain(|master| is_majority(at(&master.address)));
    }
    named
}

/// The number of sentinels that name this master.
pub fn votes_for<A: Eq>(answers: &[Option<NamedMaster<A>>], named: &NamedMaster<A>) -> usize {
    answers.iter().flatten().filter(|answer| *answer == named).count()
}

/// Until when the answers of a master count after a majority of the sentinels has named it.
///
/// Nothing stops a replaced master from granting, so its clients do. An answer counts if it arrives within the *window*: less
/// than that time after the client has begun to query a majority that named this master. As soon as one client has found a new
/// master by majority, the old one can be used for one window only. Two rules follow for a new master:
/// - Its quarantine lasts for the longest TTL and one window, so that all leases of the old master have ended.
/// - During its quarantine, it renews only leases that the old master cannot grant to others within the window:
///   [`MasterLease::carries`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MasterLease {
    queried: Moment,
    window: Duration,
}

impl MasterLease {
    /// `queried` is the moment before the first sentinel of the majority was queried.
    pub const fn new(queried: Moment, window: Duration) -> Self {
        Self { queried, window }
    }

    /// Whether an answer of the master that has arrived at `now` counts.
    pub fn counts(&self, now: Moment) -> bool {
        now < self.queried + self.window
    }

    /// A majority was queried again at `queried`. A late reply changes nothing.
    pub fn confirmed(&mut self, queried: Moment) {
        self.queried = self.queried.max(queried);
    }

    /// Whether a new master may renew a lease during its quarantine, if this much of it is left after the majority has named the new
    /// master: the lease must outlast the window on every clock.
    pub fn carries(&self, left: Duration, drift: Drift) -> bool {
        left >= self.window + drift.of(self.window) * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(names: &str) -> Vec<Option<NamedMaster<char>>> {
        let master = |(address, epoch)| NamedMaster { address, config_epoch: epoch };
        let read = |word: &str| {
            let mut chars = word.chars();
            chars.next().zip(chars.next().and_then(|epoch| epoch.to_digit(10)).map(u64::from)).map(master)
        };
        names.split(' ').map(read).collect()
    }

    #[test]
    fn a_majority_of_all_listed_sentinels_decides() {
        for (names, decided) in [
            ("a1 a1 b2", Some('a')),
            ("a1 b2 b2", Some('b')),
            ("a1", Some('a')),
            ("a1 - -", None),
            ("a1 a1 - -", None),
            ("a1 a1 -", Some('a')),
            ("a1 a3 b2", None),
            ("- - -", None),
        ] {
            assert_eq!(master_by_majority(&answers(names)).map(|named| named.address), decided, "{names}");
        }
        assert_eq!(master_by_majority::<char>(&[]), None);
    }

    #[test]
    fn candidates_are_in_the_order_of_their_votes_and_then_of_their_epochs() {
        for (names, order) in [("a1 b2 b2", "b2 a1"), ("a1 b2 -", "b2 a1"), ("a1 a3 a1", "a1 a3"), ("- -", "")] {
            let named: Vec<_> =
                named_masters(&answers(names)).iter().map(|m| format!("{}{}", m.address, m.config_epoch)).collect();
            assert_eq!(named.join(" "), order, "{names}");
        }
    }

    #[test]
    fn a_minority_directs_no_client_to_a_server_while_a_majority_answers() {
        for (names, eligible) in [
            ("a1 a1 b9", "a1"),
            ("a1 b9 c9", ""),
            ("a1 b9 -", ""),
            ("a1 a2 b9", "a2 a1"),
            ("a1 - -", "a1"),
            ("b9 - -", "b9"),
            ("a1 b9", ""),
            ("a1 -", "a1"),
        ] {
            let names_of: Vec<_> =
                eligible_masters(&answers(names)).iter().map(|m| format!("{}{}", m.address, m.config_epoch)).collect();
            assert_eq!(names_of.join(" "), eligible, "{names}");
        }
    }

    #[test]
    fn answers_count_for_one_window_after_the_question() {
        let (at, millis) = (|ms: u64| Moment::from_micros(ms * 1000), Duration::from_millis);
        let mut lease = MasterLease::new(at(1000), millis(500));
        assert!(lease.counts(at(1499)) && !lease.counts(at(1500)));
        lease.confirmed(at(1200));
        lease.confirmed(at(1100));
        assert!(lease.counts(at(1699)) && !lease.counts(at(1700)));
        let drift = Drift { ppm: 10_000, fixed: millis(2) };
        assert!(lease.carries(millis(514), drift) && !lease.carries(millis(513), drift));
    }
}
