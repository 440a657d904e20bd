//! Every failover of a master with sentinels: no two clients believe that they hold the lock if new masters have a quarantine. Each
//! rule of the production code is dropped once, and the search finds the shortest way to the damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod world;

use fencelock_search::{Explored, System, explore};
use world::{Act, Rule, Setting, World};

const SETTING: Setting = Setting { rule: Rule::Production, ttl: 2, window: 2, failovers: 1 };

impl System for Setting {
    type State = World;
    type Action = Act;

    fn initial(&self) -> World {
        World::new()
    }

    fn actions(&self, world: &World, into: &mut Vec<Act>) {
        world.acts(self, into);
    }

    fn step(&self, world: &World, act: Act) -> (World, u32) {
        world.step(act, self)
    }
}

fn search(setting: &Setting) -> Explored<Act, World> {
    let found = explore(setting, 8_000_000, World::is_broken);
    println!("{setting:?}: {} states, {} steps deep", found.states, found.depth);
    found
}

fn holds(setting: &Setting, landmarks: u32) {
    let found = search(setting);
    for (act, world) in found.trace.iter().flatten() {
        println!("{act:?}\n    {world}");
    }
    assert!(found.trace.is_none(), "{setting:?}");
    assert_eq!(found.landmarks & landmarks, landmarks, "{setting:?}");
}

#[test]
fn no_two_clients_hold_the_lock_across_a_failover() {
    let landmarks =
        World::GRANTED | World::GRANTED_BY_REPLACED | World::GRANTED_LATER | World::QUARANTINED | World::DOES_NOT_COUNT;
    holds(&SETTING, landmarks);
}

#[test]
fn no_two_clients_hold_the_lock_when_the_first_master_returns() {
    let landmarks = World::GRANTED_BY_REPLACED | World::GRANTED_LATER | World::RETURNED;
    holds(&Setting { failovers: 2, ttl: 1, window: 1, ..SETTING }, landmarks);
}

#[track_caller]
fn is_found(setting: &Setting, steps: usize) {
    let found = search(setting);
    assert_eq!(found.trace.map(|way| way.len()), Some(steps), "{setting:?}");
}

#[test]
fn without_each_rule_two_clients_hold_the_lock() {
    is_found(&Setting { rule: Rule::NoQuarantine, ..SETTING }, 11);
    // A master that less than a majority names may have been replaced.
    is_found(&Setting { rule: Rule::AnyVotes, ..SETTING }, 15);
    // A replaced master continues to grant.
    is_found(&Setting { rule: Rule::NoWindow, ..SETTING }, 16);
    // A failover between the question and the answer is not noticed.
    is_found(&Setting { rule: Rule::FromTheAnswer, ..SETTING }, 19);
    // A lease of the old master outlasts a quarantine without the window.
    is_found(&Setting { rule: Rule::ShortQuarantine, ..SETTING }, 17);
    // A new master renews a lease that ends at the old one.
    is_found(&Setting { rule: Rule::RenewsAll, ttl: 3, ..SETTING }, 19);
}

#[test]
fn without_each_rule_of_a_master_that_returns_two_clients_hold_the_lock() {
    let twice = Setting { failovers: 2, ttl: 1, window: 1, ..SETTING };
    // It has forgotten what the other one granted.
    is_found(&Setting { rule: Rule::NoReplicationId, ..twice }, 12);
    // A client with old answers begins its next quarantine too early.
    is_found(&Setting { rule: Rule::NoEpoch, ..twice }, 25);
}
