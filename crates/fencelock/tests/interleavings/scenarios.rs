//! The scenarios, in random orders, and how they run. A seed gives the same schedule again.

use crate::stage::{Act, Stage};
use fencelock_testkit::SplitMix;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Once;

/// Random schedules of each scenario.
const SCHEDULES: &str = "FENCELOCK_SCHEDULES";
const USUAL: u64 = 400;
/// The first of the seeds.
const SEED: &str = "FENCELOCK_SEED";

/// What a user may do, each at any moment at which it makes sense.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are independent of each other, and a scenario names those it allows"
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// It claimed before the schedule begins, and has received the reply.
    pub(crate) ready: bool,
    /// It may give up while it waits.
    pub(crate) cancels: bool,
    /// It may drop its guard.
    pub(crate) drops: bool,
    /// It may release its guard.
    pub(crate) releases: bool,
    /// It may give up while it releases.
    pub(crate) gives_up_release: bool,
    /// It may drop its client at any time.
    pub(crate) leaves: bool,
    /// It wants to read.
    pub(crate) reads: bool,
}

/// Events that a scenario is about. A run that never came across them has seen nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Coverage {
    /// A wait was given up while its claim was on its way.
    CancelledBeforeClaim,
    /// A wait was given up while the answer was on its way.
    CancelledBeforeAnswer,
    /// A wait was given up with the hand-off on its way.
    CancelledBeforeHandOff,
    /// A release began while a renewal was on its way.
    LetGoDuringRenewal,
    /// The answer to a renewal came after the release.
    RenewalAnsweredAfterRelease,
    /// A release was answered with a release.
    Released,
    /// A user was handed the lock in place of another.
    PassedOn,
    /// A client went before its guard.
    ClientWentFirst,
    /// Two users held the key at the same time.
    HeldTogether,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    name: &'static str,
    pub(crate) parts: &'static [Part],
    /// Every user has a client of its own.
    pub(crate) apart: bool,
    covered: &'static [Coverage],
}

/// Servers that lie. Each must be found, or the schedules see nothing. The engine's explorer has the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Says "released" and does nothing.
    IgnoresReleases,
    /// Grants what another has.
    GrantsTwice,
}

const NONE: Part = Part {
    ready: false,
    cancels: false,
    drops: false,
    releases: false,
    gives_up_release: false,
    leaves: false,
    reads: false,
};
const READY: Part = Part { ready: true, ..NONE };

const ACQUIRE_DROP: Script = Script {
    name: "acquire-drop",
    parts: &[Part { releases: true, ..READY }, Part { cancels: true, drops: true, ..NONE }],
    apart: false,
    covered: &[Coverage::CancelledBeforeClaim, Coverage::CancelledBeforeAnswer, Coverage::CancelledBeforeHandOff],
};

const RENEW_RELEASE: Script = Script {
    name: "renew-release",
    parts: &[Part { releases: true, drops: true, gives_up_release: true, ..READY }],
    apart: false,
    covered: &[Coverage::LetGoDuringRenewal, Coverage::RenewalAnsweredAfterRelease, Coverage::Released],
};

const CANCEL_HAND_OFF: Script = Script {
    name: "cancel-hand-off",
    parts: &[Part { drops: true, ..READY }, Part { cancels: true, ..READY }, READY],
    apart: false,
    covered: &[Coverage::CancelledBeforeHandOff, Coverage::PassedOn],
};

const DROPS: Script = Script {
    name: "guard-drop-client-drop",
    parts: &[Part { drops: true, leaves: true, ..READY }, Part { leaves: true, cancels: true, ..NONE }],
    apart: true,
    covered: &[Coverage::ClientWentFirst],
};

/// Two readers wait for a writer, in another cell of the client, and one of them gives up.
const READERS: Script = Script {
    name: "readers",
    parts: &[
        Part { drops: true, ..READY },
        Part { cancels: true, drops: true, reads: true, ..READY },
        Part { releases: true, reads: true, ..READY },
    ],
    apart: false,
    covered: &[Coverage::CancelledBeforeHandOff, Coverage::HeldTogether, Coverage::Released],
};

/// Runs a schedule on a runtime of its own. Returns its acts, and what it came across.
fn run(script: &Script, mutant: Option<Mutant>, seed: u64) -> Result<(Vec<Act>, Vec<Coverage>), String> {
    count_panics();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let panics = PANICS.get();
    let (result, stage) = runtime.block_on(async {
        let mut stage = Stage::new(script, mutant, seed);
        (stage.perform(&mut SplitMix::new(seed)).await, stage)
    });
    let result = if PANICS.get() == panics { result } else { Err("something panicked".into()) };
    let (name, trace) = (script.name, stage.trace);
    result.map_err(|why| format!("{name}: {why}\nto replay it: {SEED}={seed} {SCHEDULES}=1\n{trace:#?}"))?;
    Ok((trace, stage.covered.into_iter().collect()))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Many random schedules.
fn explore(script: &Script) {
    let (first, many) = (number(SEED).unwrap_or(1), number(SCHEDULES).unwrap_or(USUAL));
    let mut covered = HashMap::<_, u64>::new();
    for seed in first..first + many {
        let (_, seen) = run(script, None, seed).unwrap_or_else(|why| panic!("{why}"));
        for sight in seen {
            *covered.entry(sight).or_default() += 1;
        }
    }
    println!("{}: {many} schedules, {covered:?}", script.name);
    for sight in script.covered.iter().filter(|_| many >= USUAL) {
        assert!(covered.contains_key(sight), "{} never came across {sight:?}", script.name);
    }
}

fn is_found(mutant: Mutant, script: &Script) {
    let found = (1..1000).find_map(|seed| run(script, Some(mutant), seed).err());
    println!("{mutant:?}: {}", found.expect("the mutant was not detected").lines().next().unwrap_or_default());
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// The runtime discards the panics of detached tasks.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            usual(info);
        }));
    });
}

#[test]
fn a_seed_gives_the_same_schedule_again() {
    for script in [&ACQUIRE_DROP, &RENEW_RELEASE, &CANCEL_HAND_OFF, &DROPS, &READERS] {
        for seed in 1..50 {
            assert_eq!(run(script, None, seed), run(script, None, seed), "seed {seed}");
        }
    }
}

#[test]
fn an_acquisition_may_be_dropped_at_any_moment() {
    explore(&ACQUIRE_DROP);
}

#[test]
fn a_release_wins_over_a_renewal_under_way() {
    explore(&RENEW_RELEASE);
}

#[test]
fn a_hand_off_to_a_cancelled_waiter_goes_to_the_next() {
    explore(&CANCEL_HAND_OFF);
}

#[test]
fn guards_and_clients_may_go_in_any_order() {
    explore(&DROPS);
}

#[test]
fn readers_are_let_in_together_also_if_one_of_them_has_gone() {
    explore(&READERS);
}

#[test]
fn a_release_that_is_not_carried_out_is_found() {
    is_found(Mutant::IgnoresReleases, &ACQUIRE_DROP);
}

#[test]
fn a_grant_of_what_another_holds_is_found() {
    is_found(Mutant::GrantsTwice, &CANCEL_HAND_OFF);
}
