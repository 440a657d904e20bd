//! The scenarios, in their small versions.

use crate::coverage::Coverage;
use crate::scenario::{Budget, LIMITS, NO_BUDGET, PLAIN, Plan, SHORT, Scenario, USER};
use crate::sizes::explore;
use fencelock_core::engine::{Retry, SharingLimits};
use std::time::Duration;

pub(crate) const READY: Plan = Plan { ready: true, ..USER };

pub(crate) const ACQUIRE_DROP: Scenario = Scenario {
    name: "acquire-drop",
    users: &[Plan { releases: true, ..READY }, Plan { cancels: true, drops: true, ..USER }],
    budget: Budget { haste: 1, time: 1, ..NO_BUDGET },
    covers: &[
        Coverage::CancelledBeforeClaim,
        Coverage::CancelledBeforeAnswer,
        Coverage::CancelledBeforeHandOff,
        Coverage::SecondRelease,
        Coverage::Straggler,
    ],
    ..PLAIN
};

/// Claims that find no connection: the first of a task, and its later ones.
pub(crate) const NOT_SENT: Scenario = Scenario {
    name: "not-sent",
    users: &[Plan { releases: true, ..READY }, Plan { client: 1, cancels: true, drops: true, ..USER }],
    budget: Budget { unsent: 2, time: 2, ..NO_BUDGET },
    covers: &[Coverage::NotSent, Coverage::CancelledBeforeClaim, Coverage::CancelledBeforeAnswer],
    ..PLAIN
};

pub(crate) const RENEW_RELEASE: Scenario = Scenario {
    name: "renew-release",
    users: &[Plan { releases: true, drops: true, gives_up_release: true, ..READY }],
    budget: Budget { time: 2, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::ReleasedDuringRenewal, Coverage::RenewalAnsweredAfterRelease, Coverage::Released],
    ..PLAIN
};

pub(crate) const RENEW_LAPSE: Scenario = Scenario {
    name: "renew-lapse",
    users: &[Plan { releases: true, checks: 1, ..USER }],
    ttl: SHORT,
    server_ppm: 9_000,
    budget: Budget { time: 3, long: 4, ..NO_BUDGET },
    covers: &[Coverage::Expired, Coverage::AlreadyLost, Coverage::GrantedTooLate],
    ..PLAIN
};

pub(crate) const CANCEL_HAND_OFF: Scenario = Scenario {
    name: "cancel-hand-off",
    users: &[Plan { drops: true, ..READY }, Plan { cancels: true, ..USER }, Plan { client: 1, ..READY }],
    budget: Budget { haste: 1, ..NO_BUDGET },
    covers: &[Coverage::CancelledBeforeHandOff, Coverage::HandedToNobody, Coverage::HandedOff],
    ..PLAIN
};

/// The first two waiters are tasks of one client, and only one of them is queued at the server. The third is another client.
pub(crate) const SUCCESSOR: Scenario = Scenario {
    name: "successor",
    users: &[Plan { drops: true, ..READY }, Plan { cancels: true, ..READY }, READY, Plan { client: 1, ..READY }],
    in_order: true,
    budget: Budget { haste: 1, ..NO_BUDGET },
    covers: &[Coverage::CancelledBeforeHandOff, Coverage::Inherited],
    ..PLAIN
};

/// So does a wait that ends by itself, also while its last claim is on its way.
pub(crate) const SUCCESSOR_IN_TIME: Scenario = Scenario {
    name: "successor-in-time",
    users: &[
        Plan { drops: true, ..READY },
        Plan { cancels: true, wait: Some(Duration::from_millis(1500)), ..READY },
        Plan { cancels: true, ..READY },
        READY,
    ],
    budget: Budget { time: 2, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::CancelledBeforeClaim, Coverage::CancelledBeforeAnswer, Coverage::Inherited],
    ..PLAIN
};

pub(crate) const FOREIGN_DELETE: Scenario = Scenario {
    name: "foreign-delete",
    users: &[Plan { releases: true, ..READY }, READY, Plan { client: 1, ..READY }],
    budget: Budget { deletes: 1, time: 1, ..NO_BUDGET },
    covers: &[Coverage::Deleted, Coverage::Released],
    ..PLAIN
};

pub(crate) const RELEASE_LOSS: Scenario = Scenario {
    name: "release-loss",
    users: &[Plan { releases: true, gives_up_release: true, ..READY }],
    budget: Budget { deletes: 1, time: 2, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Deleted, Coverage::AlreadyLost, Coverage::Released],
    ..PLAIN
};

/// Lost packets, broken connections and requests that arrive twice, with a server whose clock runs fast.
pub(crate) const LOSSY: Scenario = Scenario {
    name: "lossy",
    users: &[
        Plan { releases: true, ..READY },
        Plan { cancels: true, drops: true, ..USER },
        Plan { client: 1, drops: true, ..USER },
    ],
    server_ppm: 9_000,
    budget: Budget { time: 1, lost: 1, broken: 1, ..NO_BUDGET },
    covers: &[Coverage::Straggler, Coverage::SecondRelease, Coverage::HandedOff],
    ..PLAIN
};

/// A hand-off that has ended, a request that put its holder in the queue again, and then the message of that hand-off.
pub(crate) const STALE_HAND_OFF: Scenario = Scenario {
    name: "stale-hand-off",
    users: &[Plan { drops: true, ..READY }, Plan { client: 1, ..USER }],
    budget: Budget { duplicates: 1, deletes: 1, foreign: 1, resets: 1, ..NO_BUDGET },
    covers: &[Coverage::StaleHandOff, Coverage::Duplicated, Coverage::AskedAfterReset, Coverage::HandedOff],
    ..PLAIN
};

pub(crate) const SHARED: Scenario = Scenario {
    name: "shared",
    users: &[
        Plan { drops: true, ..READY },
        Plan { releases: true, ..READY },
        Plan { cancels: true, drops: true, ..READY },
        Plan { client: 1, drops: true, ..USER },
    ],
    sharing: Some(SharingLimits { batch: Some((1, Duration::from_millis(10))), ..LIMITS }),
    budget: Budget { time: 2, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::HandedOff],
    ..PLAIN
};

pub(crate) const IDLE: Scenario = Scenario {
    name: "idle",
    users: &[
        Plan { drops: true, ..READY },
        Plan { drops: true, ..READY },
        Plan { client: 1, cancels: true, ..USER },
        Plan { drops: true, wait: Some(Duration::ZERO), ..USER },
        Plan { ttl: Some(Duration::from_secs(25)), ..USER },
    ],
    sharing: Some(SharingLimits { idle_timeout: Duration::from_millis(5), ..LIMITS }),
    budget: Budget { time: 2, ..NO_BUDGET },
    covers: &[Coverage::KeptIdle, Coverage::IdleTimeout, Coverage::TakenIdle, Coverage::Shared],
    ..PLAIN
};

/// A lease is kept idle for longer, because the backend reports other waiting clients.
pub(crate) const STICKY: Scenario = Scenario {
    name: "sticky",
    users: &[
        Plan { drops: true, ..READY },
        Plan { drops: true, ..READY },
        Plan { client: 1, cancels: true, drops: true, ..USER },
        Plan { drops: true, wait: Some(Duration::ZERO), ..USER },
    ],
    sharing: Some(SharingLimits { idle_timeout: Duration::from_secs(30), ..LIMITS }),
    announces_waiters: true,
    budget: Budget { time: 3, ..NO_BUDGET },
    covers: &[Coverage::KeptIdle, Coverage::Announced, Coverage::TakenIdle, Coverage::Shared],
    ..PLAIN
};

/// After each lease the key is left free for clients that only poll.
pub(crate) const YIELD: Scenario = Scenario {
    name: "yield",
    users: &[
        Plan { drops: true, ..READY },
        Plan { drops: true, ..READY },
        Plan { drops: true, cancels: true, ..READY },
        Plan { client: 1, retry: Some(Retry { times: 3, pause: Duration::from_millis(10) }), ..USER },
    ],
    sharing: Some(SharingLimits { stretch: Duration::ZERO, ..LIMITS }),
    budget: Budget { time: 3, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::Refused],
    ..PLAIN
};

/// As [`YIELD`], but the lease is kept when no task wants it, and ends between two tasks.
pub(crate) const YIELD_KEPT: Scenario = Scenario {
    name: "yield-kept",
    users: &[
        Plan { drops: true, ..READY },
        Plan { drops: true, ..USER },
        Plan { drops: true, cancels: true, ..USER },
        Plan { client: 1, retry: Some(Retry { times: 2, pause: Duration::from_millis(10) }), ..USER },
    ],
    sharing: Some(SharingLimits { stretch: Duration::from_millis(5), idle_timeout: Duration::from_secs(30), ..LIMITS }),
    announces_waiters: true,
    budget: Budget { time: 3, ..NO_BUDGET },
    covers: &[Coverage::KeptIdle, Coverage::KeptHistory, Coverage::IdleTimeout, Coverage::Yielded],
    ..PLAIN
};

pub(crate) const MAX_HOLD: Scenario = Scenario {
    name: "max-hold",
    users: &[
        Plan { max_hold: Some(Duration::from_millis(40)), releases: true, checks: 1, ..READY },
        Plan { max_hold: Some(Duration::from_millis(60)), drops: true, ..READY },
        Plan { max_hold: Some(Duration::from_millis(50)), drops: true, ..READY },
        Plan { client: 1, drops: true, ..USER },
    ],
    budget: Budget { time: 5, ..NO_BUDGET },
    covers: &[Coverage::MaxHold, Coverage::Shared, Coverage::AlreadyLost],
    ..PLAIN
};

pub(crate) const RESUME: Scenario = Scenario {
    name: "resume",
    users: &[
        Plan { detaches: true, releases: true, ..READY },
        Plan { client: 1, resumes: Some(0), drops: true, ..USER },
        Plan { ..READY },
    ],
    budget: Budget { time: 2, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Resumed, Coverage::Released],
    ..PLAIN
};

/// A backend without a queue that needs a fresh holder for each claim, as a quorum does.
pub(crate) const FRESH_HOLDERS: Scenario = Scenario {
    name: "fresh-holders",
    users: &[
        Plan { drops: true, ..READY },
        Plan { cancels: true, drops: true, ..USER },
        Plan { client: 1, drops: true, ..USER },
    ],
    queues: false,
    fresh_holders: true,
    budget: Budget { time: 3, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::FreshHolder, Coverage::SecondRelease],
    ..PLAIN
};

/// A backend without a queue.
pub(crate) const POLLING: Scenario = Scenario {
    name: "polling",
    users: &[
        Plan { drops: true, ..READY },
        Plan { drops: true, ..READY },
        Plan { drops: true, ..READY },
        Plan { client: 1, drops: true, cancels: true, ..USER },
    ],
    queues: false,
    sharing: Some(SharingLimits { batch: Some((1, Duration::from_millis(10))), ..LIMITS }),
    budget: Budget { time: 3, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::CancelledBeforeClaim],
    ..PLAIN
};

pub(crate) const RESET: Scenario = Scenario {
    name: "reset",
    users: &[Plan { drops: true, ..READY }, Plan { cancels: true, ..READY }, Plan { client: 1, drops: true, ..USER }],
    budget: Budget { resets: 2, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::AskedAfterReset, Coverage::HandedOff],
    ..PLAIN
};

/// Clients that try once or at intervals, and one that waits.
pub(crate) const TRIES: Scenario = Scenario {
    name: "tries",
    users: &[
        Plan { drops: true, retry: Some(Retry { times: 2, pause: Duration::from_millis(5) }), ..USER },
        Plan { client: 1, releases: true, retry: Some(Retry { times: 2, pause: Duration::from_millis(7) }), ..USER },
        Plan { client: 1, wait: Some(Duration::ZERO), cancels: true, drops: true, ..USER },
        Plan { drops: true, ..USER },
    ],
    budget: Budget { time: 2, ..NO_BUDGET },
    covers: &[Coverage::Refused, Coverage::Released],
    ..PLAIN
};

/// A client is stopped, also for longer than its lease.
pub(crate) const STOPPED: Scenario = Scenario {
    name: "stopped",
    users: &[Plan { checks: 1, releases: true, ..READY }, Plan { client: 1, drops: true, ..READY }],
    ttl: SHORT,
    server_ppm: 9_000,
    budget: Budget { stops: 1, time: 1, long: 3, ..NO_BUDGET },
    covers: &[Coverage::ContinuedTooLate, Coverage::Expired, Coverage::AlreadyLost],
    ..PLAIN
};

#[test]
fn an_acquisition_may_be_dropped_at_any_moment() {
    explore(&ACQUIRE_DROP);
}

#[test]
fn a_release_takes_precedence_over_a_renewal_under_way() {
    explore(&RENEW_RELEASE);
}

#[test]
fn a_late_renewal_revives_no_lease() {
    explore(&RENEW_LAPSE);
}

#[test]
fn a_hand_off_to_a_waiter_that_gave_up_goes_to_the_next() {
    explore(&CANCEL_HAND_OFF);
}

#[test]
fn the_position_of_a_waiter_that_gave_up_goes_to_the_next_of_its_client() {
    explore(&SUCCESSOR);
}

#[test]
fn a_position_may_be_transferred_at_any_moment() {
    explore(&SUCCESSOR_IN_TIME);
}

#[test]
fn a_foreign_delete_is_reported_to_its_holder_only() {
    explore(&FOREIGN_DELETE);
}

#[test]
fn a_hold_is_either_released_or_lost() {
    explore(&RELEASE_LOSS);
}

#[test]
fn lost_packets_and_broken_connections_leave_nothing_behind() {
    explore(&LOSSY);
}

#[test]
fn an_old_hand_off_message_grants_nothing() {
    explore(&STALE_HAND_OFF);
}

#[test]
fn tasks_that_share_a_lease_exclude_each_other() {
    explore(&SHARED);
}

#[test]
fn a_lease_that_is_idle_is_taken_or_released() {
    explore(&IDLE);
}

#[test]
fn a_lease_that_is_kept_for_longer_goes_to_a_client_that_waits() {
    explore(&STICKY);
}

#[test]
fn a_client_yields_to_others() {
    explore(&YIELD);
}

#[test]
fn a_kept_lease_leaves_the_key_to_other_clients() {
    explore(&YIELD_KEPT);
}

#[test]
fn the_longest_hold_ends_each_tenure() {
    explore(&MAX_HOLD);
}

#[test]
fn a_detached_hold_can_be_resumed() {
    explore(&RESUME);
}

#[test]
fn a_backend_may_need_a_fresh_holder_for_each_claim() {
    explore(&FRESH_HOLDERS);
}

#[test]
fn a_backend_may_have_no_queue() {
    explore(&POLLING);
}

#[test]
fn events_may_be_missed() {
    explore(&RESET);
}

#[test]
fn claims_may_find_no_connection() {
    explore(&NOT_SENT);
}

#[test]
fn tries_may_race() {
    explore(&TRIES);
}

#[test]
fn a_client_may_be_stopped_for_longer_than_its_lease() {
    explore(&STOPPED);
}
