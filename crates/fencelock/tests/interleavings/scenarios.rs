//! The scenarios. Each has a small version that is run in the first orders, depth first, and a larger in random ones.

use crate::explore;
use crate::script::{Coverage, Part, Script};
use std::time::Duration;

/// No lease ends by itself, so every leftover hold is detected.
const LONG: Duration = Duration::from_secs(30);
/// Random schedules of each scenario.
const USUAL: u64 = 200;
/// Schedules of a small version, unless more are wanted.
const MOST: u64 = 200;

const NONE: Part =
    Part { ready: false, cancels: false, drops: false, releases: false, gives_up_release: false, leaves: false };

const PLAIN: Script =
    Script { name: "", parts: &[], ttl: LONG, apart: false, times: 0, losses: 0, haste: 0, covered: &[] };

pub(crate) const ACQUIRE_DROP: Script = Script {
    name: "acquire-drop",
    parts: &[Part { ready: true, releases: true, ..NONE }, Part { cancels: true, drops: true, ..NONE }],
    haste: 1,
    covered: &[Coverage::CancelledBeforeClaim, Coverage::CancelledBeforeAnswer, Coverage::CancelledBeforeHandOff],
    ..PLAIN
};

pub(crate) const RENEW_RELEASE: Script = Script {
    name: "renew-release",
    parts: &[Part { ready: true, releases: true, drops: true, gives_up_release: true, ..NONE }],
    times: 2,
    haste: 1,
    covered: &[Coverage::LetGoDuringRenewal, Coverage::RenewalAnsweredAfterRelease, Coverage::Released],
    ..PLAIN
};

pub(crate) const CANCEL_HAND_OFF: Script = Script {
    name: "cancel-hand-off",
    parts: &[
        Part { ready: true, drops: true, ..NONE },
        Part { ready: true, cancels: true, ..NONE },
        Part { ready: true, ..NONE },
    ],
    haste: 1,
    covered: &[Coverage::CancelledBeforeHandOff, Coverage::PassedOn],
    ..PLAIN
};

pub(crate) const DROPS: Script = Script {
    name: "guard-drop-client-drop",
    parts: &[Part { ready: true, drops: true, leaves: true, ..NONE }, Part { leaves: true, cancels: true, ..NONE }],
    apart: true,
    times: 1,
    covered: &[Coverage::ClientWentFirst],
    ..PLAIN
};

/// Every order of the small version, and many of one with more time, more haste, and packets that get lost.
fn explore(small: &Script) {
    let large = Script { times: small.times + 2, losses: 2, haste: small.haste + 2, ..*small };
    let run = || {
        if explore::replay(small)? {
            return Ok(());
        }
        let every = explore::all(small, None, explore::schedules(MOST).max(MOST))?;
        let many = explore::some(&large, None, explore::schedules(USUAL))?;
        for sight in small.covered {
            let of = |report: &explore::SearchSummary| report.covered.get(sight).copied().unwrap_or_default();
            println!("  {sight:?}: {} + {}", of(&every), of(&many));
            if of(&every) + of(&many) == 0 {
                return Err(format!("{} never came across {sight:?}", small.name));
            }
        }
        Ok(())
    };
    if let Err(why) = run() {
        panic!("{why}");
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
