//! Every order in which clients can claim several keys, lose leases, give up and release: every client finishes, none enters
//! without all of its keys, and none leaves a key behind. Each rule of [`fencelock_core::engine::AcquireAll`] is dropped once,
//! and the search finds the shortest way to the damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod world;

use std::collections::{HashMap, VecDeque};
use world::{Act, Rule, Setting, World};

/// Each begins with another key.
const TURNED: &[&[&str]] = &[&["a", "b", "c"], &["b", "c", "a"], &["c", "a", "b"]];
/// Each shares one key with each of the others.
const RING: &[&[&str]] = &[&["a", "b"], &["b", "c"], &["c", "a"]];
/// The last one wants less than the others.
const NESTED: &[&[&str]] = &[&["a", "b", "c"], &["a", "b", "c"], &["b", "a"]];
const PAIR: &[&[&str]] = &[&["a", "b", "c"], &["c", "b", "a"]];

const SETTING: Setting = Setting { rule: Rule::Production, wants: TURNED, losses: 0, bounded: false, at_once: false };

struct Found {
    states: usize,
    rounds: u32,
    /// What is broken, and the shortest way there.
    broken: Option<(String, Vec<Act>)>,
}

/// All states, nearest first.
fn search(setting: &Setting) -> Found {
    let start = World::new(setting);
    let mut from: HashMap<World, Option<(World, Act)>> = HashMap::from([(start.clone(), None)]);
    let (mut next, mut rounds) = (VecDeque::from([start]), 0);
    while let Some(world) = next.pop_front() {
        rounds = rounds.max(world.rounds());
        let acts = world.acts(setting);
        if acts.is_empty() && !world.is_over() {
            return Found { states: from.len(), rounds, broken: Some(("deadlock".into(), way(&from, &world))) };
        }
        for act in acts {
            let mut after = world.clone();
            if let Err(broken) = after.act(act, setting) {
                let mut way = way(&from, &world);
                way.push(act);
                return Found { states: from.len(), rounds, broken: Some((broken, way)) };
            }
            if !from.contains_key(&after) {
                from.insert(after.clone(), Some((world.clone(), act)));
                next.push_back(after);
            }
        }
    }
    Found { states: from.len(), rounds, broken: None }
}

fn way(from: &HashMap<World, Option<(World, Act)>>, to: &World) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at = to;
    while let Some((before, act)) = &from[at] {
        acts.push(*act);
        at = before;
    }
    acts.reverse();
    acts
}

#[test]
fn every_client_finishes_and_nothing_is_left() {
    for wants in [TURNED, RING, NESTED, PAIR] {
        for bounded in [false, true] {
            let setting = Setting { wants, bounded, losses: 3, ..SETTING };
            let found = search(&setting);
            println!("{wants:?}, bounded: {bounded}: {} states", found.states);
            assert_eq!(found.broken, None, "{setting:?}");
            // A search in which no lease was lost while another key was waited for proves nothing.
            assert!(found.states > 300 && found.rounds as usize >= wants.len() + 2, "{}", found.states);
        }
    }
}

#[track_caller]
fn is_found(setting: Setting, what: &str, steps: usize) {
    let Some((broken, way)) = search(&setting).broken else { panic!("not found: {setting:?}") };
    println!("{:?}: {broken}: {way:?}", setting.rule);
    assert_eq!((broken.as_str(), way.len()), (what, steps), "{way:?}");
    let kept = search(&Setting { rule: Rule::Production, ..setting });
    assert_eq!(kept.broken, None, "the rule prevents it");
}

#[test]
fn clients_that_claim_in_orders_of_their_own_deadlock() {
    is_found(Setting { rule: Rule::OwnOrder, at_once: true, ..SETTING }, "deadlock", 6);
}

#[test]
fn clients_that_wait_in_all_queues_without_a_common_order_deadlock() {
    is_found(Setting { rule: Rule::WaitsInAllQueues, wants: NESTED, at_once: true, ..SETTING }, "deadlock", 8);
}

#[test]
fn a_client_that_retakes_a_lost_key_alone_deadlocks() {
    let setting = Setting { rule: Rule::RetakesLostKeyAlone, wants: PAIR, losses: 1, at_once: true, ..SETTING };
    is_found(setting, "deadlock", 6);
}

#[test]
fn a_client_that_does_not_check_its_leases_at_the_last_grant_enters_without_a_key() {
    let setting = Setting { rule: Rule::LastGrantUnchecked, losses: 1, ..SETTING };
    is_found(setting, "client 0 enters without a", 8);
}

#[test]
fn a_refused_client_that_gives_nothing_back_leaves_a_key() {
    let setting = Setting { rule: Rule::KeepsOnRefusal, wants: RING, bounded: true, ..SETTING };
    is_found(setting, "client 0 was refused and leaves a key behind", 5);
}
