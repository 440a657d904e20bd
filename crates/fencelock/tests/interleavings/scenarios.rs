//! The scenarios. Each has a small version that is run in the first orders, depth first, and a larger in random ones.

use crate::explore;
use crate::script::{Coverage, Kind, Part, Script};
use std::time::Duration;

/// No lease ends by itself, so every leftover hold is detected.
const LONG: Duration = Duration::from_secs(30);
/// Random schedules of each scenario.
const USUAL: u64 = 200;
/// Schedules of a small version, unless more are wanted.
const MOST: u64 = 200;

const NONE: Part = Part {
    kind: Kind::Exclusive,
    ready: false,
    cancels: false,
    drops: false,
    releases: false,
    gives_up_release: false,
    leaves: false,
};

const READER: Part = Part { kind: Kind::Shared, ..NONE };

const ALL: [&Script; 7] = [&ACQUIRE_DROP, &RENEW_RELEASE, &CANCEL_HAND_OFF, &DROPS, &READERS, &WRITER, &PERMITS];

const fn permits(weight: u32) -> Part {
    Part { kind: Kind::Permits(weight), ..NONE }
}

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

/// Two readers wait for a writer, and one of them gives up.
pub(crate) const READERS: Script = Script {
    name: "readers",
    parts: &[
        Part { ready: true, drops: true, ..NONE },
        Part { ready: true, cancels: true, drops: true, ..READER },
        Part { ready: true, releases: true, ..READER },
    ],
    haste: 1,
    covered: &[Coverage::CancelledBeforeHandOff, Coverage::HeldTogether, Coverage::Released],
    ..PLAIN
};

/// A writer waits for two readers, and gives up.
const WRITER: Script = Script {
    name: "writer-behind-readers",
    parts: &[
        Part { ready: true, releases: true, ..READER },
        Part { ready: true, drops: true, gives_up_release: true, ..READER },
        Part { cancels: true, drops: true, ..NONE },
    ],
    times: 2,
    covered: &[Coverage::HeldTogether, Coverage::CancelledBeforeHandOff, Coverage::Released],
    ..PLAIN
};

/// One holder of both permits, then two that hold one each.
pub(crate) const PERMITS: Script = Script {
    name: "permits",
    parts: &[
        Part { ready: true, drops: true, ..permits(2) },
        Part { ready: true, cancels: true, drops: true, ..permits(1) },
        Part { ready: true, releases: true, ..permits(1) },
    ],
    haste: 1,
    covered: &[Coverage::CancelledBeforeHandOff, Coverage::HeldTogether, Coverage::Released],
    ..PLAIN
};

/// With more time, more haste, and packets that get lost.
fn larger(small: &Script) -> Script {
    Script { times: small.times + 2, losses: 2, haste: small.haste + 2, ..*small }
}

/// The first orders of the small version, and many of the larger one.
fn explore(small: &Script) {
    let large = larger(small);
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
fn a_schedule_repeats_in_one_try() {
    for small in ALL {
        if let Err(why) = explore::twice(&larger(small), USUAL / 4) {
            panic!("{why}");
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
fn a_writer_gets_the_key_after_all_readers() {
    explore(&WRITER);
}

#[test]
fn permits_go_to_waiters_that_still_want_them() {
    explore(&PERMITS);
}
