//! Readers, writers that downgrade, and permits.

use crate::coverage::Coverage;
use crate::scenario::{Budget, Kind, NO_BUDGET, PLAIN, Plan, SHORT, Scenario, USER};
use crate::scenarios::READY;
use crate::sizes::explore;

const READER: Plan = Plan { kind: Kind::Reader, drops: true, ..USER };
const READS: Plan = Plan { ready: true, ..READER };

/// The readers and a writer of one client, and a writer of another.
pub(crate) const READERS_AND_WRITERS: Scenario = Scenario {
    name: "readers-and-writers",
    users: &[
        READS,
        Plan { cancels: true, ..READER },
        Plan { client: 1, drops: true, cancels: true, ..USER },
        Plan { client: 2, ..READY },
    ],
    budget: Budget { haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Together, Coverage::Shared, Coverage::HandedOff, Coverage::CancelledBeforeHandOff],
    ..PLAIN
};

/// Readers of two clients, one after the other and together. Each may be done at any moment while others read.
pub(crate) const READERS: Scenario = Scenario {
    name: "readers",
    users: &[
        READS,
        Plan { releases: true, ..READS },
        Plan { cancels: true, ..READER },
        Plan { client: 1, kind: Kind::Reader, releases: true, ..USER },
    ],
    budget: Budget { time: 1, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Together, Coverage::Shared, Coverage::Released],
    ..PLAIN
};

/// Another program deletes the key, or the lease ends.
pub(crate) const LOST_READERS: Scenario = Scenario {
    name: "lost-readers",
    users: &[READS, Plan { checks: 1, ..READS }, Plan { client: 1, kind: Kind::Reader, ..READY }],
    ttl: SHORT,
    server_ppm: 9_000,
    budget: Budget { deletes: 1, time: 2, long: 3, ..NO_BUDGET },
    covers: &[Coverage::LostTogether, Coverage::Deleted, Coverage::Expired, Coverage::Together],
    ..PLAIN
};

/// A task of a client takes one permit, another all; so does one of another client.
pub(crate) const PERMITS: Scenario = Scenario {
    name: "permits",
    users: &[
        Plan { kind: Kind::Permits(1), ready: true, drops: true, ..USER },
        Plan { kind: Kind::Permits(2), releases: true, cancels: true, ..USER },
        Plan { client: 1, kind: Kind::Permits(1), drops: true, ..USER },
        Plan { client: 1, kind: Kind::Permits(1), ..USER },
    ],
    budget: Budget { haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Together, Coverage::HandedOff, Coverage::CancelledBeforeHandOff, Coverage::Released],
    ..PLAIN
};

/// Permits and an exclusive lock of the same client, with packets that arrive twice.
pub(crate) const PERMITS_AND_WRITER: Scenario = Scenario {
    name: "permits-and-writer",
    users: &[
        Plan { kind: Kind::Permits(1), ready: true, drops: true, ..USER },
        Plan { drops: true, cancels: true, ..USER },
        Plan { client: 1, kind: Kind::Permits(2), drops: true, ..USER },
    ],
    budget: Budget { duplicates: 1, ..NO_BUDGET },
    covers: &[Coverage::HandedOff, Coverage::Duplicated],
    ..PLAIN
};

/// A writer becomes a reader, and may give that up at any moment. A task of its client and a reader wait.
pub(crate) const DOWNGRADE: Scenario = Scenario {
    name: "downgrade",
    users: &[
        Plan { downgrades: true, gives_up_downgrade: true, drops: true, releases: true, ..READY },
        Plan { cancels: true, drops: true, ..READY },
        Plan { client: 1, kind: Kind::Reader, drops: true, ..USER },
    ],
    budget: Budget { time: 1, lost: 1, ..NO_BUDGET },
    covers: &[
        Coverage::Downgraded,
        Coverage::DowngradedAgain,
        Coverage::DowngradeGivenUp,
        Coverage::Together,
        Coverage::HandedOff,
    ],
    ..PLAIN
};

/// It loses its hold meanwhile.
pub(crate) const LOST_DOWNGRADE: Scenario = Scenario {
    name: "lost-downgrade",
    users: &[
        Plan { downgrades: true, gives_up_downgrade: true, checks: 1, drops: true, ..READY },
        Plan { client: 1, drops: true, ..USER },
    ],
    ttl: SHORT,
    server_ppm: 9_000,
    budget: Budget { time: 2, long: 3, deletes: 1, broken: 1, ..NO_BUDGET },
    covers: &[Coverage::Downgraded, Coverage::DowngradeLost, Coverage::Expired, Coverage::Deleted],
    ..PLAIN
};

#[test]
fn readers_and_writers_of_one_client_exclude_each_other() {
    explore(&READERS_AND_WRITERS);
}

#[test]
fn a_reader_that_is_done_ends_its_own_reading_only() {
    explore(&READERS);
}

#[test]
fn each_reader_is_notified_of_the_loss_of_a_shared_hold() {
    explore(&LOST_READERS);
}

#[test]
fn permits_of_different_weights_fit_together() {
    explore(&PERMITS);
}

#[test]
fn permits_and_exclusive_locks_wait_in_one_queue() {
    explore(&PERMITS_AND_WRITER);
}

#[test]
fn a_downgrade_may_be_given_up_at_any_moment() {
    explore(&DOWNGRADE);
}

#[test]
fn a_hold_may_be_lost_during_its_downgrade() {
    explore(&LOST_DOWNGRADE);
}
