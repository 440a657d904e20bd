//! Clients that are closed or lose their connection, releases that the server refuses, and holds that cannot be resumed or were given
//! away.

use crate::coverage::Coverage;
use crate::mutants::{Mutant, found};
use crate::scenario::{Budget, Kind, LIMITS, NO_BUDGET, PLAIN, Plan, Scenario, USER};
use crate::scenarios::{READY, RESUME, STICKY};
use crate::sizes::explore;
use fencelock_core::engine::SharingLimits;
use std::time::Duration;

/// A client is closed while one of its tasks holds, others wait, and another client is in the queue.
const CLOSE: Scenario = Scenario {
    name: "close",
    users: &[
        Plan { drops: true, releases: true, ..READY },
        Plan { drops: true, cancels: true, ..READY },
        Plan { drops: true, ..USER },
        Plan { client: 1, drops: true, ..READY },
    ],
    budget: Budget { closes: 1, time: 1, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Closed, Coverage::Drained, Coverage::HandedOff, Coverage::Shared],
    ..PLAIN
};

/// It waits at the server, or keeps an idle lease.
const CLOSE_IDLE: Scenario = Scenario {
    name: "close-idle",
    users: &[
        Plan { drops: true, ..READY },
        Plan { client: 1, drops: true, cancels: true, ..USER },
        Plan { drops: true, wait: Some(Duration::ZERO), ..USER },
    ],
    sharing: Some(SharingLimits { idle_timeout: Duration::from_secs(30), ..LIMITS }),
    announces_waiters: true,
    budget: Budget { closes: 2, time: 1, ..NO_BUDGET },
    covers: &[Coverage::Closed, Coverage::ClosedIdle, Coverage::Drained, Coverage::KeptIdle],
    ..PLAIN
};

/// As [`STICKY`], and the connection of a client is reset.
const RECONNECT: Scenario = Scenario {
    name: "reconnect",
    budget: Budget { reconnects: 1, time: 1, ..NO_BUDGET },
    covers: &[Coverage::Reconnected, Coverage::KeptIdle, Coverage::TakenIdle],
    ..STICKY
};

/// The server refuses releases in the background.
const REFUSED: Scenario = Scenario {
    name: "refused-release",
    users: &[Plan { drops: true, ..READY }, Plan { client: 1, cancels: true, drops: true, ..USER }],
    budget: Budget { refusals: 1, time: 1, ..NO_BUDGET },
    covers: &[Coverage::RefusedRelease, Coverage::GivenUp, Coverage::HandedOff],
    ..PLAIN
};

/// As [`RESUME`], and the hold may end before.
const RESUME_LATE: Scenario = Scenario {
    name: "resume-late",
    budget: Budget { ends: 1, time: 1, ..NO_BUDGET },
    covers: &[Coverage::Resumed, Coverage::NotResumed],
    ..RESUME
};

/// One of two readers that share a hold gives its holder id away, and another client resumes the hold.
const GIVEN_AWAY: Scenario = Scenario {
    name: "given-away",
    users: &[
        Plan { detaches: true, kind: Kind::Reader, ..READY },
        Plan { kind: Kind::Reader, releases: true, drops: true, ..READY },
        Plan { client: 1, kind: Kind::Reader, resumes: Some(0), drops: true, ..USER },
        Plan { client: 2, ..USER },
    ],
    covers: &[Coverage::Shared, Coverage::Resumed, Coverage::AlreadyLost],
    ..PLAIN
};

#[test]
fn a_hold_whose_id_was_given_away_stays_after_those_who_shared_it() {
    explore(&GIVEN_AWAY);
}

#[test]
fn a_client_that_is_closed_ends_its_waits_and_leaves_nothing_behind() {
    explore(&CLOSE);
}

#[test]
fn a_client_that_is_closed_keeps_no_lease() {
    explore(&CLOSE_IDLE);
}

#[test]
fn a_client_that_keeps_a_lease_learns_of_waiters_after_its_connection_was_reset() {
    explore(&RECONNECT);
}

#[test]
fn a_release_that_is_refused_is_repeated_for_a_hold() {
    explore(&REFUSED);
}

#[test]
fn a_hold_that_has_ended_is_not_resumed() {
    explore(&RESUME_LATE);
}

#[test]
fn each_mutant_of_closing_and_of_what_outlives_it_is_found() {
    for (mutant, scenario, acts, why) in [
        (Mutant::ReleasesTheGivenAway, &GIVEN_AWAY, 2, "not its own"),
        (Mutant::ClosesQuietly, &CLOSE, 1, "is closed, and a task waits"),
        (Mutant::TakesWhenClosed, &CLOSE, 1, "closed"),
        (Mutant::IgnoresReset, &RECONNECT, 5, "does not learn"),
        (Mutant::GivesUpHolds, &REFUSED, 2, "left at the server"),
        (Mutant::ResumesTheLost, &RESUME_LATE, 3, "not its own"),
    ] {
        assert!(found(mutant, scenario, acts).contains(why), "{mutant:?}");
    }
}
