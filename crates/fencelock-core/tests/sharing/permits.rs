//! Tasks of one client that pass permits on: in random schedules a task that may use permits has a hold on the backend of its own, and
//! the tasks come in order. Where requests are counted, and where another client waits, the schedule is given.

use crate::world::{Act, World};
use fencelock_core::Mode;
use proptest::prelude::*;
use std::time::Duration;

fn permits(weight: u32, limit: u32) -> World {
    World::new(Mode::permits(weight, limit).unwrap())
}

/// With `odds` some tasks claim with another TTL.
fn acts(odds: bool) -> impl Strategy<Value = Vec<Act>> {
    let which = any::<prop::sample::Index>;
    let act = prop_oneof![
        10 => prop::bool::weighted(0.1).prop_map(move |odd| Act::Enter { odd: odd && odds }),
        2 => which().prop_map(Act::Cancel),
        8 => which().prop_map(Act::Release),
        1 => which().prop_map(Act::Detach),
        2 => (0..3_u8, 1..4_u32).prop_map(|(number, weight)| Act::OtherComes { number, weight }),
        3 => (0..3_u8).prop_map(|number| Act::OtherGoes { number }),
        1 => Just(Act::Forget),
        6 => prop_oneof![0..5_u64, 5..1500_u64].prop_map(Act::Pass),
        1 => (any::<bool>(), 1..4_u8).prop_map(|(carried_out, requests)| Act::Lose { carried_out, requests }),
    ];
    prop::collection::vec(act, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_task_with_permits_has_a_hold_of_its_own(
        acts in any::<bool>().prop_flat_map(acts), weight in 1..3_u32, limit in 3..5_u32,
    ) {
        let mut world = permits(weight, limit);
        for act in &acts {
            world.act(act);
        }
        world.wind_down();
    }
}

/// Every task that has permits returns them, and a new one comes, once in each of so many milliseconds.
fn cycle(world: &mut World, millis: u64) {
    for _ in 0..millis {
        for _ in 0..world.guards.len() {
            world.release(0);
            world.act(&Act::Enter { odd: false });
        }
        world.act(&Act::Pass(1));
    }
}

/// So many tasks of one client, on a semaphore that has been used before.
fn busy(weight: u32, limit: u32, tasks: usize) -> World {
    let mut world = permits(weight, limit);
    world.act(&Act::Pass(10));
    for _ in 0..tasks {
        world.act(&Act::Enter { odd: false });
    }
    world
}

#[test]
fn hundreds_of_grants_need_one_claim_for_each_permit() {
    let mut world = busy(1, 2, 6);
    // The first leases have few tokens, and each claim asks for more of them than the one before.
    cycle(&mut world, 300);
    let (claims, releases, granted) = (world.backend.claims, world.backend.releases, world.granted);
    cycle(&mut world, 500);
    assert_eq!(world.granted - granted, 1000);
    assert_eq!((world.backend.claims, world.backend.releases), (claims, releases), "no request was needed");
    assert!(claims <= 10, "{claims} claims before that");
    world.wind_down();
}

#[test]
fn no_more_claims_wait_than_there_can_be_permits() {
    let mut world = permits(1, 4);
    for number in 0..4 {
        world.act(&Act::OtherComes { number, weight: 1 });
    }
    for _ in 0..50 {
        world.act(&Act::Enter { odd: false });
    }
    assert_eq!((world.backend.waiting(), world.guards.len()), (4, 0));
    world.act(&Act::Pass(10));
    world.act(&Act::OtherGoes { number: 0 });
    assert!(
        world.backend.waiting() <= 4 && world.guards.len() == 1,
        "the first lease has one token, and is claimed again"
    );
    world.wind_down();
}

#[test]
fn a_claim_of_a_task_that_got_other_permits_is_not_sent_again() {
    let mut world = permits(1, 2);
    world.act(&Act::OtherComes { number: 0, weight: 1 });
    world.act(&Act::Pass(10));
    for _ in 0..4 {
        world.act(&Act::Enter { odd: false });
    }
    cycle(&mut world, 300);
    let claims = world.backend.claims;
    assert_eq!(
        (world.backend.waiting(), world.guards.len()),
        (1, 1),
        "one is passed on, and a claim waits for the other"
    );
    cycle(&mut world, 500);
    let more = world.backend.claims - claims;
    assert!(more <= 1, "a claim that waits is polled once a second, not {more} times");
    world.wind_down();
}

/// Four tasks, two of which have the permits that another client leaves, and a claim of each of the others waits.
fn in_turns() -> World {
    let mut world = permits(1, 4);
    for number in [0, 1] {
        world.act(&Act::OtherComes { number, weight: 1 });
    }
    world.act(&Act::Pass(10));
    for _ in 0..4 {
        world.act(&Act::Enter { odd: false });
    }
    cycle(&mut world, 300);
    assert_eq!((world.backend.waiting(), world.guards.len()), (2, 2));
    world
}

#[test]
fn tasks_that_take_turns_keep_their_claims() {
    let mut world = in_turns();
    let (claims, releases) = (world.backend.claims, world.backend.releases);
    cycle(&mut world, 500);
    assert!(world.backend.claims - claims <= 2, "a claim that waits is polled once a second");
    assert_eq!(world.backend.releases, releases);
    world.wind_down();
}

#[test]
fn a_claim_that_no_task_takes_over_is_released_soon() {
    let mut world = in_turns();
    world.release(0);
    assert_eq!((world.backend.waiting(), world.guards.len()), (2, 2), "another task may come at once");
    world.act(&Act::Pass(5));
    assert_eq!((world.backend.waiting(), world.guards.len()), (1, 2));
    world.release(0);
    world.release(0);
    world.release(0);
    assert!(world.backend.waiting() == 0 && world.guards.is_empty(), "no task has permits, so no claim is kept");
    world.wind_down();
}

#[test]
fn permits_that_are_granted_to_a_claim_without_a_task_are_returned_at_once() {
    let mut world = in_turns();
    world.release(0);
    world.act(&Act::OtherGoes { number: 0 });
    world.act(&Act::OtherGoes { number: 1 });
    assert_eq!((world.backend.waiting(), world.guards.len()), (0, 3));
    assert_eq!(world.backend.holders().len(), 3, "three tasks, three permits");
    world.wind_down();
}

#[test]
fn a_client_alone_claims_each_time() {
    let mut world = permits(1, 4);
    world.act(&Act::Enter { odd: false });
    cycle(&mut world, 20);
    assert_eq!((world.backend.claims, world.backend.releases, world.granted), (21, 20, 21));
    world.wind_down();
}

/// How long another client waits for so many permits of a client whose tasks pass all of them on.
fn wait_of_another(weight: u32, hides_waiters: bool) -> Duration {
    let mut world = busy(1, 4, 20);
    world.backend.hides_waiters = hides_waiters;
    cycle(&mut world, 30);
    let came = world.now;
    world.act(&Act::OtherComes { number: 0, weight });
    while !world.backend.has(crate::backend::other(0)) {
        cycle(&mut world, 1);
        assert!(world.now.since(came) < Duration::from_secs(10), "it waits forever");
    }
    let waited = world.now.since(came);
    world.wind_down();
    waited
}

#[test]
fn another_client_waits_for_one_batch() {
    for weight in [1, 4] {
        let waited = wait_of_another(weight, false);
        assert!(waited <= Duration::from_millis(20), "for {weight} permits: {waited:?}");
    }
}

#[test]
fn another_client_that_is_not_reported_waits_longer() {
    assert!(wait_of_another(4, true) > Duration::from_millis(100), "so the other test can fail");
}

/// How long another client waits whose claim comes after those of tasks of this client, if the backend announces waiters.
#[test]
fn a_claim_of_the_client_does_not_hide_the_next_waiter() {
    let mut world = permits(1, 4);
    world.announces = true;
    world.act(&Act::OtherComes { number: 0, weight: 1 });
    world.act(&Act::Pass(10));
    for _ in 0..3 {
        world.act(&Act::Enter { odd: false });
        world.act(&Act::Pass(1));
    }
    world.release(0);
    world.act(&Act::Enter { odd: false });
    world.act(&Act::Pass(100));
    for _ in 0..4 {
        world.act(&Act::Enter { odd: false });
    }
    world.act(&Act::Pass(1));
    let came = world.now;
    world.act(&Act::OtherComes { number: 1, weight: 3 });
    while !world.backend.has(crate::backend::other(1)) {
        for _ in 0..world.guards.len() {
            world.release(0);
            world.act(&Act::Enter { odd: false });
        }
        world.act(&Act::Pass(10));
        assert!(world.now.since(came) < Duration::from_millis(100), "it waits for longer than a batch");
    }
}
