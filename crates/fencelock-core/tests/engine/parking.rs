//! Futures that are neither polled nor dropped for a while.

use crate::coverage::Coverage;
use crate::explore::search;
use crate::mutants::{Mutant, found};
use crate::network::{Op, Packet, Reply};
use crate::scenario::{Budget, Kind, NO_BUDGET, PLAIN, Plan, Scenario, USER};
use crate::scenarios::READY;
use crate::sizes::explore;
use fencelock_core::{Moment, Unknown};
use std::time::Duration;

/// Until the others are served: a task that does not run loses its turn after once or twice this.
pub(crate) const TURN: Duration = Duration::from_secs(2);

/// A future that is neither polled nor dropped.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Parked {
    /// The request that its next poll would send.
    pub(crate) unsent: Option<Packet>,
    pub(crate) unread: Option<(Op, Moment, Result<Reply, Unknown>)>,
}

const PARKS: Budget = Budget { parks: 1, time: 3, ..NO_BUDGET };

/// The key is free, or handed on, and the first task does not run.
const FREE_KEY: Scenario = Scenario {
    name: "parked-claim",
    users: &[Plan { parks: true, ..USER }, Plan { drops: true, ..USER }],
    turn_limit: Some(TURN),
    budget: PARKS,
    covers: &[Coverage::TurnLost],
    ..PLAIN
};

/// A lease is passed to a task that does not run.
const PASSED: Scenario = Scenario {
    name: "parked-grant",
    users: &[
        Plan { drops: true, ..READY },
        Plan { parks: true, ..READY },
        Plan { drops: true, ..USER },
        Plan { client: 1, ..READY },
    ],
    turn_limit: Some(TURN),
    budget: Budget { time: 2, ..PARKS },
    covers: &[Coverage::TurnLost, Coverage::Shared, Coverage::HandedOff],
    ..PLAIN
};

/// One of several tasks that claim permits does not run, and requests are lost.
const PERMITS: Scenario = Scenario {
    name: "parked-permits",
    users: &[
        Plan { kind: Kind::Permits(2), drops: true, ..READY },
        Plan { kind: Kind::Permits(2), parks: true, cancels: true, ..USER },
        Plan { kind: Kind::Permits(2), drops: true, ..USER },
    ],
    turn_limit: Some(TURN),
    budget: Budget { lost: 1, time: 2, ..PARKS },
    covers: &[Coverage::TurnLost, Coverage::Shared],
    ..PLAIN
};

#[test]
fn permits_for_a_task_that_does_not_run_are_passed_on() {
    explore(&PERMITS);
}

#[test]
fn a_claim_of_a_task_that_does_not_run_keeps_nobody_waiting() {
    explore(&FREE_KEY);
}

#[test]
fn a_lease_for_a_task_that_does_not_run_is_passed_on() {
    explore(&PASSED);
}

#[test]
fn a_task_that_only_waits_for_a_reply_keeps_its_turn() {
    let scenario = Scenario { budget: Budget { time: 6, haste: 1, ..NO_BUDGET }, ..FREE_KEY };
    let report = search(&scenario, None, 60_000).unwrap_or_else(|failure| panic!("{failure:#?}"));
    assert!(!report.covered.contains(Coverage::TurnLost), "it lost its turn");
}

#[test]
fn a_task_that_keeps_its_turn_for_ever_is_found() {
    let scenario = Scenario { turn_limit: None, ..FREE_KEY };
    assert!(found(Mutant::KeepsItsTurn, &scenario, 3).contains("although a task does not run"));
}

#[test]
fn a_claim_that_is_sent_after_its_turn_is_found() {
    let why = found(Mutant::SendsAfterTurnLost, &FREE_KEY, 11);
    assert!(why.contains("every user is served"), "{why}");
}
