//! Every order in which clients can do the work of a window, lose their leases, lose messages and give up: no window has two
//! runs that count, and work that was reported as done is not run again. Each rule of `once` is dropped once, and the search
//! finds the shortest way to the damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod parts;
mod setting;
mod world;

use fencelock_core::once::Runs;
use fencelock_search::Frontier;
use setting::{Act, Rule, Setting};
use world::World;

/// One node, whose clock steps forward and back.
const ALONE: Setting = Setting {
    rule: Rule::Production,
    runs: Runs::Succeed,
    nodes: 1,
    clients: 2,
    attempts: 3,
    step: 1,
    windows: [1, 1],
    ticks: 1,
    steps_back: 1,
    peeks: true,
    losses: 1,
    drops: 1,
};

const QUORUM: Setting = Setting { nodes: 3, attempts: 2, ticks: 0, steps_back: 0, peeks: false, ..ALONE };

/// A caller with short windows and one with long ones. A step lasts longer than a completion is kept after its end.
const MIXED: Setting =
    Setting { step: 7200, windows: [1, 4], ticks: 3, steps_back: 0, losses: 0, drops: 0, attempts: 4, ..ALONE };

struct Found {
    states: usize,
    /// The most windows in which a run counted, and whether work was reported as done.
    most_done: usize,
    reported: bool,
    broken: Option<(&'static str, Vec<Act>)>,
}

/// All states, nearest first.
fn search(setting: &Setting) -> Found {
    let mut frontier = Frontier::new([World::new(setting)]);
    let (mut most_done, mut reported) = (0, false);
    while let Some((world, number)) = frontier.visit() {
        most_done = most_done.max(world.done.len());
        reported |= !world.reported.is_empty();
        for act in world.acts(setting) {
            let mut after = world.clone();
            if let Err(broken) = after.act(act, setting) {
                let (_, mut way) = frontier.way(number);
                way.push(act);
                return Found { states: frontier.states(), most_done, reported, broken: Some((broken, way)) };
            }
            frontier.add(after, number, act);
        }
    }
    Found { states: frontier.states(), most_done, reported, broken: None }
}

fn holds(setting: &Setting, windows: usize) {
    let found = search(setting);
    println!("{:?}, {} nodes: {} states", setting.runs, setting.nodes, found.states);
    assert_eq!(found.broken, None, "{setting:?}");
    // A search in which nothing was done, or nothing was found done, proves nothing.
    assert!(found.most_done >= windows && found.reported, "{} {}", found.most_done, found.reported);
}

#[test]
fn no_window_of_one_backend_has_two_runs_that_count() {
    for runs in [Runs::Succeed, Runs::Start] {
        holds(&Setting { runs, ..ALONE }, 2);
    }
}

#[test]
fn no_window_of_a_quorum_has_two_runs_that_count() {
    for runs in [Runs::Succeed, Runs::Start] {
        holds(&Setting { runs, ..QUORUM }, 1);
        holds(&Setting { runs, peeks: true, losses: 0, drops: 0, ..QUORUM }, 1);
    }
}

#[test]
fn callers_with_different_windows_respect_each_others_runs() {
    for runs in [Runs::Succeed, Runs::Start] {
        holds(&Setting { runs, ..MIXED }, 2);
    }
}

#[track_caller]
fn is_found(setting: Setting, what: &str, steps: usize) {
    let Some((broken, way)) = search(&setting).broken else { panic!("not found: {setting:?}") };
    println!("{:?}, {:?}, {} nodes: {broken}: {} steps: {way:?}", setting.rule, setting.runs, setting.nodes, way.len());
    assert_eq!((broken, way.len()), (what, steps), "{way:?}");
}

const TWICE: &str = "twice in one window";
const AGAIN: &str = "work is run after it was reported as done";

#[test]
fn without_each_rule_work_runs_twice_in_a_window() {
    for (runs, steps) in [(Runs::Succeed, 11), (Runs::Start, 10)] {
        is_found(Setting { rule: Rule::NoReadUnderLock, runs, ..ALONE }, TWICE, steps);
    }
    is_found(Setting { rule: Rule::ReleaseFirst, ..ALONE }, TWICE, 12);
    // The check of the node and that of the lease are each enough: the damage needs both to be dropped.
    is_found(Setting { rule: Rule::LateWriteCounts, ..ALONE }, TWICE, 14);
    is_found(Setting { rule: Rule::UnknownWriteCounts, runs: Runs::Start, ..ALONE }, TWICE, 12);
    is_found(Setting { rule: Rule::OneNodeIsEnough, ..QUORUM }, TWICE, 17);
    // A later run keeps only its own end.
    is_found(Setting { rule: Rule::NoMerge, ..MIXED }, TWICE, 24);
    // A confirmation that arrives late is the one write that needs no hold.
    let setting = Setting { rule: Rule::WriteReplaces, attempts: 4, steps_back: 0, losses: 0, drops: 0, ..ALONE };
    is_found(setting, TWICE, 25);
}

#[test]
fn without_a_confirmation_work_is_run_again_after_it_was_reported_as_done() {
    is_found(Setting { rule: Rule::NoConfirmation, attempts: 3, peeks: true, losses: 0, ..QUORUM }, AGAIN, 21);
    // The caller with longer windows does not confirm.
    is_found(Setting { rule: Rule::NoConfirmation, ..MIXED }, AGAIN, 17);
}
