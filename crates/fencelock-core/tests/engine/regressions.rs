//! Schedules that found a defect, act by act.

use crate::scenario::{Budget, LIMITS, NO_BUDGET, PLAIN, Plan, Scenario};
use crate::scenarios::READY;
use crate::wind_down::wind_down;
use crate::world::Act::{self, Deliver, Drop, Time};
use crate::world::World;
use fencelock_core::engine::SharingLimits;
use std::time::Duration;

/// Whether the tasks run after an act.
const RUN: bool = true;
const WAIT: bool = false;
/// The first hold is dropped; then come the release, its answer, and the hand-off to user 1.
const HANDED_OFF: [(Act, bool); 4] = [(Drop(0), RUN), (Deliver(0), RUN), (Deliver(0), RUN), (Deliver(0), RUN)];

/// Performs these acts after a hand-off, and then the end.
fn perform(scenario: &Scenario, acts: &[(Act, bool)]) {
    let mut world = World::new(scenario, None, 0, true).unwrap();
    for (act, run) in HANDED_OFF.iter().chain(acts) {
        assert!(world.acts().contains(act), "{act:?} is not possible now: {:?}", world.acts());
        world.act(*act).unwrap();
        if *run {
            world.settle().unwrap();
        }
    }
    if let Err(end) = wind_down(world) {
        let (why, world) = *end;
        panic!("{why}\n{}", world.trace.unwrap_or_default().join("\n"));
    }
}

const DROPS: Plan = Plan { drops: true, ..READY };
const BUDGET: Budget = Budget { time: 2, ..NO_BUDGET };

/// A lease from a hand-off is passed to the next task, is renewed at the server, and expires before the answer and before that
/// task has run. No guard exists that would release it.
#[test]
fn a_shared_lease_that_is_lost_before_its_task_runs_is_released() {
    let scenario = Scenario { users: &[DROPS, DROPS, READY], budget: BUDGET, ..PLAIN };
    // The renewal; its answer comes when the lease is over.
    let (renewal, answer) = ((Deliver(0), RUN), (Deliver(0), WAIT));
    perform(&scenario, &[(Time, RUN), renewal, (Drop(1), WAIT), (Time, WAIT), answer]);
}

/// The same for an idle lease: it runs out before the answer to its renewal.
#[test]
fn an_idle_lease_that_is_lost_is_released() {
    // The first has another TTL, so the second claims for itself and is handed the key with a short lease.
    const USERS: &[Plan] = &[Plan { ttl: Some(Duration::from_secs(25)), ..DROPS }, DROPS];
    let limits = SharingLimits { idle_timeout: Duration::from_secs(10), stretch: Duration::from_secs(10), ..LIMITS };
    let scenario = Scenario { users: USERS, sharing: Some(limits), announces_waiters: true, budget: BUDGET, ..PLAIN };
    // It is kept idle, and is renewed at once.
    perform(&scenario, &[(Drop(1), RUN), (Deliver(0), RUN), (Time, RUN), (Deliver(0), RUN)]);
}
