//! Servers that lie. Each must be found, or the schedules see nothing. The engine's explorer has the others.

use crate::script::Script;
use crate::{explore, scenarios};
use fencelock::Unknown;
use fencelock_core::{Acquire, FencingToken};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Says "released" and does nothing.
    IgnoresReleases,
    /// Grants what another has.
    GrantsTwice,
}

impl Mutant {
    pub(crate) fn of_claim(mutant: Option<Self>, answer: Result<Acquire, Unknown>) -> Result<Acquire, Unknown> {
        match (mutant, answer) {
            (Some(Self::GrantsTwice), Ok(Acquire::Queued { hand_off, .. })) => {
                Ok(Acquire::Granted { tokens: FencingToken::new(hand_off.last_fence + 1).unwrap().into() })
            }
            (_, answer) => answer,
        }
    }
}

/// Runs a scenario over a server that lies until it is found out.
fn found(mutant: Mutant, script: &Script) {
    let all = explore::all(script, Some(mutant), 1_000).map(|_| ());
    let found = all.and_then(|()| explore::some(script, Some(mutant), 1_000).map(|_| ()));
    let why = found.expect_err("the mutant was not detected");
    println!("{mutant:?}: {}", why.lines().next().unwrap_or_default());
}

#[test]
fn a_release_that_is_not_carried_out_is_found() {
    found(Mutant::IgnoresReleases, &scenarios::ACQUIRE_DROP);
}

#[test]
fn a_grant_of_what_another_holds_is_found() {
    found(Mutant::GrantsTwice, &scenarios::CANCEL_HAND_OFF);
}

#[test]
fn a_reader_during_a_writer_is_found() {
    found(Mutant::GrantsTwice, &scenarios::READERS);
}

#[test]
fn permits_beyond_the_limit_are_found() {
    found(Mutant::GrantsTwice, &scenarios::PERMITS);
}
