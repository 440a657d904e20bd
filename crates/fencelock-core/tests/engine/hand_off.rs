//! The hand-off on one Redis, searched exhaustively over the client of production: may a waiter begin as soon as it receives
//! its grant?
//!
//! Here requests arrive at any time, or twice, and messages come late, also after a later answer. Each protection is
//! then dropped in turn, in the server or around the engine, and the search must find the damage. It visits the nearest states
//! first, so the number of acts is the smallest, and part of the test.

use crate::explore::{self, Failure};
use crate::mutants::Mutant;
use crate::scenario::{Budget, NO_BUDGET, PLAIN, Plan, SHORT, Scenario};
use crate::scenarios::READY;
use crate::{coverage::Coverage, scenario::USER};

/// Above what any search here needs.
const LIMIT: usize = 400_000;

/// A holder and a waiter of two clients, and another program. Time passes to the next poll or renewal.
pub(crate) const TWO: Scenario = Scenario {
    name: "hand-off-two",
    users: &[Plan { drops: true, ..READY }, Plan { client: 1, drops: true, ..USER }],
    any_delay: true,
    budget: Budget { foreign: 1, time: 2, ..NO_BUDGET },
    covers: &[Coverage::HandedOff],
    ..PLAIN
};

/// The same, where a request or a message arrives twice and another program deletes the key.
const TWICE: Scenario = Scenario {
    name: "hand-off-twice",
    users: &[Plan { drops: true, ..READY }, Plan { client: 1, ..USER }],
    any_delay: true,
    budget: Budget { resets: 1, foreign: 1, duplicates: 1, deletes: 1, ..NO_BUDGET },
    covers: &[Coverage::HandedOff, Coverage::StaleHandOff, Coverage::Duplicated],
    ..PLAIN
};

/// A holder and two waiters, one of which may give up.
const THREE: Scenario = Scenario {
    name: "hand-off-three",
    users: &[
        Plan { drops: true, ..READY },
        Plan { client: 1, drops: true, cancels: true, ..USER },
        Plan { client: 2, drops: true, ..USER },
    ],
    any_delay: true,
    budget: NO_BUDGET,
    covers: &[Coverage::HandedOff, Coverage::CancelledBeforeHandOff],
    ..PLAIN
};

/// A lock ends by itself at any moment, also the one that was handed off under the claim TTL, while requests and messages are
/// in flight. The waiter polls in between.
pub(crate) const ENDS: Scenario = Scenario {
    name: "hand-off-ends",
    users: &[Plan { drops: true, ..READY }, Plan { client: 1, drops: true, ..USER }],
    any_delay: true,
    budget: Budget { ends: 1, time: 1, ..NO_BUDGET },
    covers: &[Coverage::HandedOff, Coverage::Expired],
    ..PLAIN
};

/// The same with requests and messages that arrive twice.
const ENDS_TWICE: Scenario = Scenario {
    name: "hand-off-ends-twice",
    budget: Budget { ends: 1, duplicates: 1, ..NO_BUDGET },
    covers: &[Coverage::HandedOff, Coverage::Duplicated],
    ..ENDS
};

/// The same with three clients.
const ENDS_THREE: Scenario = Scenario {
    name: "hand-off-ends-three",
    users: &[
        Plan { drops: true, ..READY },
        Plan { client: 1, drops: true, ..READY },
        Plan { client: 2, drops: true, ..USER },
    ],
    budget: Budget { ends: 1, ..NO_BUDGET },
    covers: &[Coverage::HandedOff, Coverage::Expired],
    ..ENDS
};

/// The claim TTL is longer than the TTL.
const ENDS_SOON: Scenario = Scenario {
    name: "hand-off-ends-soon",
    ttl: SHORT,
    budget: Budget { time: 2, ..NO_BUDGET },
    covers: &[Coverage::HandedOff],
    ..ENDS
};

/// Every state is visited, and no promise is broken in any.
fn holds(scenario: &Scenario) {
    holds_within(scenario, LIMIT);
}

pub(crate) fn holds_within(scenario: &Scenario, limit: usize) {
    let report = explore::search_all(scenario, limit);
    let report = report.unwrap_or_else(|failure| panic!("{}", explore::explain(scenario, &failure)));
    println!("{}: {} states, {} acts deep", scenario.name, report.count, report.longest);
    assert!(report.complete, "the search of {} was cut short", scenario.name);
    for what in scenario.covers {
        assert!(report.covered.contains(*what), "{} never came across {what:?}", scenario.name);
    }
}

/// Without the protection a promise is broken after so many acts. After them everything arrives in order.
#[track_caller]
fn breaks(mutant: Mutant, scenario: &Scenario, acts: usize, promise: &str) {
    let Failure { choices, why, trace } = explore::search(scenario, Some(mutant), LIMIT).expect_err("a damage");
    println!("{mutant:?}, {} acts: {why}\n  {}", choices.len() - 1, trace.join("\n  "));
    assert!(why.contains(promise), "{why}");
    assert_eq!(choices.len() - 1, acts, "{mutant:?}");
}

#[test]
fn an_early_start_keeps_every_promise_with_another_program() {
    holds(&TWO);
}

#[test]
fn an_early_start_keeps_every_promise_when_requests_arrive_twice() {
    holds(&TWICE);
}

#[test]
fn an_early_start_keeps_every_promise_with_three_clients() {
    holds(&THREE);
}

#[test]
fn a_message_taken_as_ownership_breaks_exclusion() {
    breaks(Mutant::MessageIsOwnership, &THREE, 1, "not its own");
}

#[test]
fn accepting_a_stale_message_breaks_exclusion() {
    breaks(Mutant::AcceptsOldTokens, &TWICE, 9, "not its own");
}

#[test]
fn handing_off_a_held_lock_breaks_exclusion() {
    breaks(Mutant::HandsOffWhileHeld, &THREE, 3, "not its own");
}

#[test]
fn passing_over_a_waiter_that_was_reached_breaks_exclusion() {
    breaks(Mutant::SkipsReachedWaiter, &THREE, 1, "not its own");
}

#[test]
fn an_early_start_keeps_every_promise_when_locks_end() {
    holds(&ENDS);
}

#[test]
fn an_early_start_keeps_every_promise_when_two_locks_end() {
    holds_within(&Scenario { budget: Budget { ends: 2, ..ENDS.budget }, ..ENDS }, 10 * LIMIT);
}

#[test]
fn an_early_start_keeps_every_promise_when_locks_end_requests_arrive_twice_and_clients_poll_again() {
    holds_within(&Scenario { budget: Budget { resets: 1, ..ENDS_TWICE.budget }, ..ENDS_TWICE }, 10 * LIMIT);
}

#[test]
fn an_early_start_keeps_every_promise_when_locks_end_and_requests_arrive_twice() {
    holds(&ENDS_TWICE);
}

#[test]
fn an_early_start_keeps_every_promise_when_locks_end_with_three_clients() {
    holds(&ENDS_THREE);
}

#[test]
fn an_early_start_keeps_every_promise_when_the_claim_ttl_is_the_longer_one() {
    holds(&ENDS_SOON);
}

#[test]
fn counting_from_receipt_breaks_exclusion() {
    breaks(Mutant::CountsFromReceipt, &ENDS, 7, "not its own");
}

/// The last claim may have been sent after the hand-off, when the claim TTL had begun.
#[test]
fn counting_from_an_unanswered_claim_breaks_exclusion() {
    breaks(Mutant::CountsFromLastSent, &ENDS, 9, "not its own");
}

#[test]
fn a_claim_that_must_wait_and_is_not_in_the_queue_is_never_served() {
    breaks(Mutant::QueuesStrangers, &ENDS, 3, "every user is served");
}
