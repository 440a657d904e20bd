//! Every order in which clients can claim several keys, lose leases, give up and release: every client finishes, none enters
//! without all of its keys, and none leaves a key behind. Each rule of `lock_all` is dropped once, and the search finds the shortest
//! way to the damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod world;

use fencelock_search::{System, explore};
use std::cell::{Cell, RefCell};
use world::{Act, Rule, Setting, World};

/// Each begins with another key.
const TURNED: &[&[&str]] = &[&["a", "b", "c"], &["b", "c", "a"], &["c", "a", "b"]];
/// Each shares one key with each of the others.
const RING: &[&[&str]] = &[&["a", "b"], &["b", "c"], &["c", "a"]];
/// The last one needs fewer keys than the others.
const NESTED: &[&[&str]] = &[&["a", "b", "c"], &["a", "b", "c"], &["b", "a"]];
const SAME: &[&[&str]] = &[&["a", "b"], &["b", "a"], &["a", "b"]];
const PAIR: &[&[&str]] = &[&["a", "b", "c"], &["c", "b", "a"]];

const SETTING: Setting =
    Setting { rule: Rule::Production, wants: TURNED, tries: false, losses: 0, bounded: false, at_once: false };

struct Found {
    states: usize,
    rounds: u32,
    /// What is broken, and the shortest way there.
    broken: Option<(String, Vec<Act>)>,
}

/// A state is an error after an act that breaks a rule.
impl System for Setting {
    type State = Result<World, String>;
    type Action = Act;

    fn initial(&self) -> Self::State {
        Ok(World::new(self))
    }

    fn actions(&self, state: &Self::State, into: &mut Vec<Act>) {
        into.extend(state.iter().flat_map(|world| world.acts(self)));
    }

    fn step(&self, state: &Self::State, act: Act) -> (Self::State, u32) {
        let after = state.clone().and_then(|mut world| world.act(act, self).map(|()| world));
        (after, 0)
    }
}

fn search(setting: &Setting) -> Found {
    let (rounds, damage) = (Cell::new(0), RefCell::new(None));
    let found = explore(setting, 10_000_000, |state| {
        let mut damage = damage.borrow_mut();
        *damage = match state {
            Ok(world) => {
                rounds.set(world.rounds().max(rounds.get()));
                (!world.is_over() && world.acts(setting).is_empty()).then(|| "deadlock".to_owned())
            }
            Err(broken) => Some(broken.clone()),
        };
        damage.is_some()
    });
    let way = found.trace.map(|way| way.into_iter().map(|(act, _)| act).collect());
    Found { states: found.states, rounds: rounds.get(), broken: damage.into_inner().zip(way) }
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

/// The keys of a try arrive in any order, and so do the releases of those that are not kept.
#[test]
fn keys_that_are_tried_at_the_same_time_do_no_harm() {
    for (wants, losses) in [(PAIR, 1), (RING, 1), (SAME, 1)] {
        for bounded in [false, true] {
            let setting = Setting { wants, bounded, losses, tries: true, ..SETTING };
            let found = search(&setting);
            println!("{wants:?}, bounded: {bounded}: {} states", found.states);
            assert_eq!(found.broken, None, "{setting:?}");
            assert!(found.states > 3000 && found.rounds as usize > wants.len(), "{}", found.states);
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
fn without_a_common_order_clients_deadlock() {
    is_found(Setting { rule: Rule::OwnOrder, at_once: true, ..SETTING }, "deadlock", 6);
    is_found(Setting { rule: Rule::WaitsInAllQueues, wants: NESTED, at_once: true, ..SETTING }, "deadlock", 8);
    is_found(Setting { rule: Rule::KeepsLaterKeys, wants: PAIR, tries: true, ..SETTING }, "deadlock", 10);
    let retakes = Setting { rule: Rule::RetakesLostKeyAlone, wants: PAIR, losses: 1, at_once: true, ..SETTING };
    is_found(retakes, "deadlock", 6);
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
