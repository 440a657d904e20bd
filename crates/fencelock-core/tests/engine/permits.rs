//! Permits that the tasks of one client pass on.

use crate::coverage::Coverage;
use crate::mutants::{Mutant, found};
use crate::network::{Call, Packet};
use crate::scenario::{Budget, Kind, LIMITS, NO_BUDGET, PLAIN, Plan, SHORT, Scenario, USER};
use crate::sizes::{explore, explore_with};
use crate::wind_down::wind_down;
use crate::world::{Act, World};
use fencelock_core::engine::SharingLimits;
use std::time::Duration;

const PERMIT: Plan = Plan { kind: Kind::Permits(1), drops: true, ..USER };
const HELD: Plan = Plan { ready: true, ..PERMIT };

/// Four tasks of a client and one of another share two permits. Each may be done, and two may give up, at any moment.
pub(crate) const PASSED: Scenario = Scenario {
    name: "passed-permits",
    users: &[
        HELD,
        Plan { releases: true, ..PERMIT },
        Plan { cancels: true, ..PERMIT },
        Plan { cancels: true, ..PERMIT },
        Plan { client: 1, ..PERMIT },
    ],
    covers: &[
        Coverage::Together,
        Coverage::Shared,
        Coverage::HandedOff,
        Coverage::SharedWhileClaiming,
        Coverage::GrantedToAnother,
        Coverage::Inherited,
        Coverage::CancelledBeforeClaim,
        Coverage::CancelledBeforeAnswer,
        Coverage::CancelledBeforeHandOff,
        Coverage::Released,
    ],
    ..PLAIN
};

/// The other client has a permit all the time, so that a task waits at the server while others pass one on.
pub(crate) const BESIDE_ANOTHER: Scenario = Scenario {
    name: "permits-beside-another",
    users: &[
        Plan { client: 1, ready: true, kind: Kind::Permits(1), ..USER },
        HELD,
        Plan { ready: true, cancels: true, ..PERMIT },
        Plan { releases: true, cancels: true, ..PERMIT },
    ],
    budget: Budget { time: 1, haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::SharedWhileClaiming, Coverage::HandedOff],
    ..PLAIN
};

/// Another client wants all permits.
pub(crate) const BESIDE_A_LARGE_CLAIM: Scenario = Scenario {
    name: "permits-beside-a-large-claim",
    users: &[HELD, HELD, PERMIT, Plan { client: 1, kind: Kind::Permits(2), ..USER }],
    budget: Budget { time: 1, duplicates: 1, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::HandedOff, Coverage::Duplicated, Coverage::Together],
    ..PLAIN
};

/// Another program deletes the key, or a lease ends.
pub(crate) const LOST: Scenario = Scenario {
    name: "lost-permits",
    users: &[Plan { checks: 1, ..HELD }, Plan { checks: 1, ..HELD }, PERMIT, Plan { client: 1, ..PERMIT }],
    ttl: SHORT,
    server_ppm: 9_000,
    budget: Budget { deletes: 1, time: 2, long: 3, ..NO_BUDGET },
    covers: &[Coverage::Deleted, Coverage::Expired, Coverage::Shared, Coverage::Together],
    ..PLAIN
};

/// Waits with an end, holds with an end, and a task that tries once.
pub(crate) const BOUNDED: Scenario = Scenario {
    name: "bounded-permits",
    users: &[
        HELD,
        Plan { max_hold: Some(Duration::from_millis(200)), ..HELD },
        Plan { wait: Some(Duration::from_millis(100)), ..PERMIT },
        Plan { wait: Some(Duration::ZERO), ..PERMIT },
    ],
    budget: Budget { time: 4, ..NO_BUDGET },
    covers: &[Coverage::MaxHold, Coverage::Refused, Coverage::Shared],
    ..PLAIN
};

/// A task gives its permits to another process, and others resume or pass on theirs.
pub(crate) const DETACHED: Scenario = Scenario {
    name: "detached-permits",
    users: &[Plan { detaches: true, ..HELD }, HELD, PERMIT, PERMIT, Plan { resumes: Some(0), ..PERMIT }],
    budget: Budget { lost: 1, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::Resumed],
    ..PLAIN
};

/// A backend without a queue.
pub(crate) const POLLED: Scenario = Scenario {
    name: "polled-permits",
    users: &[HELD, Plan { ready: true, ..HELD }, Plan { cancels: true, ..PERMIT }, Plan { client: 1, ..PERMIT }],
    queues: false,
    budget: Budget { time: 2, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::Together],
    ..PLAIN
};

/// A client passes on permits, and its other tasks ask for another number of them, or with another TTL.
pub(crate) const UNLIKE: Scenario = Scenario {
    name: "unlike-permits",
    users: &[
        HELD,
        Plan { kind: Kind::Permits(2), cancels: true, ..PERMIT },
        Plan { ttl: Some(Duration::from_secs(20)), ..PERMIT },
        PERMIT,
        PERMIT,
    ],
    budget: Budget { haste: 1, ..NO_BUDGET },
    covers: &[Coverage::Shared, Coverage::HandedOff, Coverage::Together],
    ..PLAIN
};

#[test]
fn permits_are_passed_on_in_the_order_of_arrival() {
    explore_with(&PASSED, 100_000);
}

#[test]
fn a_task_that_waits_at_the_server_gets_the_permits_of_another_one() {
    explore(&BESIDE_ANOTHER);
}

#[test]
fn permits_that_are_passed_on_do_not_keep_a_large_claim_waiting() {
    explore(&BESIDE_A_LARGE_CLAIM);
}

#[test]
fn the_holder_of_passed_permits_is_notified_of_their_loss() {
    explore(&LOST);
}

#[test]
fn waits_and_holds_of_permits_end_in_time() {
    explore(&BOUNDED);
}

#[test]
fn permits_that_are_given_away_are_not_passed_on() {
    explore(&DETACHED);
}

#[test]
fn permits_are_passed_on_where_the_backend_has_no_queue() {
    explore(&POLLED);
}

#[test]
fn tasks_that_ask_for_other_permits_claim_for_themselves() {
    explore(&UNLIKE);
}

#[test]
fn each_mutant_of_passing_permits_on_is_found() {
    found(Mutant::ReleasesForAll, &PASSED, 7);
    assert!(found(Mutant::EntersFirst, &PASSED, 6).contains("of its client"));
    found(Mutant::GivesNothingBack, &PASSED, 2);
}

/// The tasks that wait for their turn, and the user of the third client.
const TASKS: [usize; 6] = [3, 4, 5, 6, 7, 8];
const THIRD: usize = 9;

/// A client of eight tasks, and one with a user before and one with a user after them.
const fn turns(kind: Kind) -> [Plan; THIRD + 1] {
    let waits = Plan { kind, ..PERMIT };
    let mut users = [waits; THIRD + 1];
    users[0] = Plan { client: 1, ready: matches!(kind, Kind::Permits(1)), ..waits };
    (users[1].ready, users[2].ready) = (true, true);
    users[THIRD].client = 2;
    users
}

/// The tasks of a client pass on one permit, and another client has the other one all the time.
const TURNS: Scenario = Scenario {
    name: "turns",
    users: &turns(Kind::Permits(1)),
    sharing: Some(SharingLimits { batch: Some((1, Duration::from_millis(10))), ..LIMITS }),
    announces_waiters: true,
    budget: Budget { time: 9, ..NO_BUDGET },
    ..PLAIN
};

/// The tasks of a client pass on all permits, so none of them claims.
const TURNS_OF_ALL: Scenario = Scenario { name: "turns-of-all", users: &turns(Kind::Permits(2)), ..TURNS };

/// The second task has a lease that can be passed on, and the server announces the next waiter. Its other tasks wait.
fn in_turns(scenario: &Scenario) -> World {
    let mut world = World::new(scenario, None, 0, true).unwrap();
    // The first one came alone, so its lease has one token.
    perform(&mut world, Act::Drop(1));
    while !world.server.announces_to.contains(&0) {
        perform(&mut world, Act::Time);
    }
    for task in TASKS {
        perform(&mut world, Act::Ask(task));
    }
    world
}

/// An act, and all that follows before time passes.
fn perform(world: &mut World, act: Act) {
    world.act(act).unwrap();
    world.settle().unwrap();
    world.deliver_all().unwrap();
}

#[test]
fn claims_of_the_client_itself_do_not_end_its_sharing() {
    let mut world = in_turns(&TURNS);
    for task in TASKS {
        world.act(Act::Drop(task - 1)).unwrap();
        world.settle().unwrap();
        assert!(world.users[task].guard.is_some(), "the lease is passed on to the task {task}");
        let mut calls = world.packets.iter().filter_map(Packet::call);
        assert!(calls.all(|call| matches!(call, Call::Renew(_))), "nothing else is sent: {:?}", world.packets);
        world.deliver_all().unwrap();
    }
    wind_down(world).unwrap();
}

#[test]
fn a_client_that_waits_is_noticed_beside_claims_of_the_client_itself_and_without_them() {
    for (scenario, most) in [(TURNS, 4), (TURNS_OF_ALL, 2)] {
        let mut world = in_turns(&scenario);
        perform(&mut world, Act::Ask(THIRD));
        let served = TASKS.into_iter().take_while(|task| {
            perform(&mut world, Act::Drop(task - 1));
            world.users[THIRD].guard.is_none()
        });
        let served = served.count();
        assert!(served <= most, "{}: after {served} tasks of another client", scenario.name);
        wind_down(world).unwrap();
    }
}
