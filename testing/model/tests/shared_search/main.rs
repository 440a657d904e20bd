//! Every order in which a few clients can share a key, wait, renew, downgrade, stop and release, on the model of the scripts, with
//! clients of version 0 and programs that use the key without the scripts. Each rule is dropped once, and the search finds the shortest
//! way to the damage.
//!
//! The clients are those of one server without hand-off messages: the searches of the engine have these.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod checks;
mod client;
mod resizing;
mod world;

use client::{Client, Kind, PERMIT};
use std::collections::{HashSet, VecDeque};
use world::{Act, Rule, Setting, World};

const READER: Kind = Kind::Shared;
const WRITER: Kind = Kind::Writer;

struct Found {
    states: usize,
    /// What is broken, and the shortest way there.
    broken: Option<(String, Vec<Act>)>,
}

/// All states, nearest first.
fn search(setting: &Setting) -> Found {
    let start = World::new(setting);
    let mut states = vec![(start.clone(), None)];
    let mut known = HashSet::from([start]);
    let mut next = VecDeque::from([0]);
    while let Some(at) = next.pop_front() {
        let world: World = states[at].0.clone();
        for act in world.acts(setting) {
            let mut after = world.clone();
            if let Err(broken) = after.act(act, setting) {
                let mut way = way(&states, at);
                way.push(act);
                return Found { states: known.len(), broken: Some((broken, way)) };
            }
            if known.insert(after.clone()) {
                next.push_back(states.len());
                states.push((after, Some((at, act))));
            }
        }
    }
    Found { states: known.len(), broken: None }
}

fn way(states: &[(World, Option<(usize, Act)>)], to: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at = to;
    while let Some((before, act)) = states[at].1 {
        acts.push(act);
        at = before;
    }
    acts.reverse();
    acts
}

fn holds(name: &str, setting: &Setting) {
    let found = search(setting);
    println!("{name}: {} states", found.states);
    if let Some((broken, way)) = found.broken {
        panic!("{name}: {broken}\n{way:#?}");
    }
}

fn breaks(rule: Rule, setting: &Setting, damage: &str) {
    let found = search(&Setting { rule, ..setting.clone() });
    let Some((broken, way)) = found.broken else { panic!("{rule:?}: no damage in {} states", found.states) };
    println!("{rule:?}: {broken} after {} steps, {} states\n  {way:?}", way.len(), found.states);
    assert!(broken.contains(damage), "{rule:?}: {broken}\n{way:#?}");
}

fn setting(kinds: &[Kind]) -> Setting {
    Setting {
        clients: kinds.iter().map(|kind| Client::new(*kind)).collect(),
        plain: false,
        duplicates: 0,
        renewals: 0,
        resizes: 0,
        rule: Rule::Production,
    }
}

fn all() -> Vec<(&'static str, Setting)> {
    let permit = |weight, limit| Kind::Permits { weight, limit };
    let plain = |setting: Setting, duplicates| Setting { plain: true, duplicates, ..setting };
    let resized = |kinds: &[Kind], resizes| Setting { resizes, ..setting(kinds) };
    vec![
        ("three permits of a semaphore that is resized twice", resized(&[PERMIT, PERMIT, PERMIT], 2)),
        ("permits of weight two and one, resized", resized(&[permit(2, 2), PERMIT, PERMIT], 1)),
        ("clients that disagree, and a semaphore that is resized", resized(&[PERMIT, PERMIT, permit(1, 3)], 1)),
        ("a writer and two permits of a semaphore that is resized", resized(&[WRITER, PERMIT, PERMIT], 1)),
        ("a writer and two readers", setting(&[WRITER, READER, READER])),
        ("two writers and a reader", setting(&[WRITER, WRITER, READER])),
        ("two readers, a plain client, a duplicate", plain(setting(&[READER, READER]), 1)),
        ("a writer, a reader, a plain client, two duplicates", plain(setting(&[WRITER, READER]), 2)),
        ("a writer that downgrades, and two readers", setting(&[Kind::Downgrader, READER, READER])),
        (
            "a writer that downgrades, a reader, a plain client, a duplicate",
            plain(setting(&[Kind::Downgrader, READER]), 1),
        ),
        ("three permits of two", setting(&[PERMIT, PERMIT, PERMIT])),
        ("permits of weight two and one", setting(&[permit(2, 2), PERMIT, PERMIT])),
        ("clients with two limits", setting(&[PERMIT, PERMIT, permit(1, 3)])),
        ("a writer and two permits", setting(&[WRITER, PERMIT, PERMIT])),
        ("a client of version 0 and two readers", setting(&[Kind::Before, READER, READER])),
        ("a client of version 0, a reader, a plain client, a duplicate", plain(setting(&[Kind::Before, READER]), 1)),
        ("two clients of version 0 and a permit", setting(&[Kind::Before, Kind::Before, PERMIT])),
    ]
}

#[test]
fn clients_that_share_a_key_keep_every_promise() {
    for (name, setting) in all() {
        holds(name, &setting);
    }
}

/// The same with a renewal of each client. Millions of states.
#[test]
#[ignore = "takes minutes and gigabytes"]
fn clients_that_renew_keep_every_promise() {
    for (name, setting) in all() {
        holds(name, &Setting { renewals: 1, ..setting });
    }
}

/// Three clients, and any one request twice.
#[test]
#[ignore = "a million states: a quarter of a minute and 1.7 GB"]
fn three_clients_with_a_request_that_arrives_twice_keep_every_promise() {
    let three = [
        ("a writer and two readers, a duplicate", [WRITER, READER, READER]),
        ("two writers and a reader, a duplicate", [WRITER, WRITER, READER]),
        ("a writer that downgrades, and two readers, a duplicate", [Kind::Downgrader, READER, READER]),
        ("three permits of two, a duplicate", [PERMIT, PERMIT, PERMIT]),
    ];
    for (name, kinds) in three {
        holds(name, &Setting { duplicates: 1, ..setting(&kinds) });
    }
}

#[test]
fn a_rule_that_is_dropped_leads_to_damage() {
    let readers = setting(&[WRITER, READER, READER]);
    let plain = Setting { plain: true, renewals: 1, ..setting(&[READER, READER]) };
    let permits = setting(&[PERMIT, PERMIT, Kind::Permits { weight: 2, limit: 2 }]);
    breaks(Rule::OvertakesWaiters, &readers, "order");
    breaks(Rule::LockEndsBeforeItsHolds, &plain, "plain");
    breaks(Rule::DowngradesWithTheReply, &setting(&[Kind::Downgrader, READER]), "exclusion");
    breaks(Rule::FreesTwice, &Setting { duplicates: 1, ..permits }, "exclusion");
    breaks(Rule::IgnoresLimits, &setting(&[PERMIT, PERMIT, Kind::Permits { weight: 1, limit: 3 }]), "exclusion");
    breaks(Rule::CancelsWithoutAdvance, &setting(&[READER, WRITER, READER]), "first waiter");
    breaks(Rule::RenewsEndedHolds, &Setting { renewals: 1, ..setting(&[READER, WRITER]) }, "exclusion");
    let resized = Setting { resizes: 1, ..setting(&[PERMIT, PERMIT, PERMIT]) };
    breaks(Rule::ResizeForgetsThePermitsInUse, &resized, "exclusion");
    breaks(Rule::ResizeLeavesWaiters, &resized, "a waiter is refused");
    breaks(Rule::PollsByTheLimitBefore, &resized, "a waiter is refused");
    let weights = Setting { resizes: 1, ..setting(&[Kind::Permits { weight: 2, limit: 2 }, PERMIT, PERMIT]) };
    breaks(Rule::ResizeKeepsEveryWaiter, &weights, "a waiter is refused");
    breaks(Rule::DropsUnknownEntries, &setting(&[Kind::Before, READER, Kind::Before]), "order");
}
