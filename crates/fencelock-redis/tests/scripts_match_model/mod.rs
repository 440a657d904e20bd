//! Compares the scripts on a real server with their specification, [`fencelock_model`].
//!
//! Sequences of commands run on several keys. Each command is sent as in production, and executed in the model. The clock of the
//! server only moves with the steps of the test, so replies, messages, and the content of the key and its side keys are compared
//! to the millisecond after every command.
//!
//! A difference is printed with the trace of its key. `FENCELOCK_SEED=n` runs only the batch of this seed.
//! `FENCELOCK_SEQUENCES=n` runs this number of sequences.
//!
//! It is one of the unit tests, because it needs `scripts/`, which is not public. It needs nothing else of the crate.
#![cfg(target_os = "linux")]

mod call;
mod combined;
mod completions;
mod coverage;
mod differential;
mod expected;
mod fast_path;
mod foreign;
mod messages;
mod moment;
mod mutants;
mod quarantined_client;
mod real;
mod replies;
mod resize_mutants;
mod sent;
mod shared_mutants;
mod step;
mod traces;

use coverage::Coverage;
use real::Real;

/// The number of keys in a batch, and of steps for each.
const SIZE: (usize, usize) = (100, 30);
/// The server that messages are attributed to.
const RUN_ID: &str = "0123456789abcdef";
const SEQUENCES: usize = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn the_scripts_match_the_model() {
    let sequences = number("FENCELOCK_SEQUENCES").map_or(SEQUENCES, |n| usize::try_from(n).unwrap());
    let seeds = match number("FENCELOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..sequences.div_ceil(SIZE.0) as u64,
    };
    let complete = seeds.end - seeds.start >= (SEQUENCES / SIZE.0) as u64;
    // Two servers, because a server and its test use one core each.
    let halves = [seeds.clone().step_by(2), (seeds.start + 1..seeds.end).step_by(2)];
    let halves = halves.map(|seeds| std::thread::spawn(move || play(seeds)));
    let mut coverage = Coverage::default();
    for half in halves {
        let Some(half) = half.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) else { return };
        coverage.extend(half);
    }
    if complete {
        coverage.must_be_complete();
    }
}

/// Runs the batches of these seeds on a separate server.
fn play(seeds: impl Iterator<Item = u64>) -> Option<Coverage> {
    let mut real = Real::start(differential::START_US)?;
    let mut coverage = Coverage::default();
    for seed in seeds {
        let Err((trace, difference)) = differential::play(&mut real, seed, SIZE, None, &mut coverage) else { continue };
        let steps = trace.iter().map(|step| format!("{step:?}")).collect::<Vec<_>>().join("\n");
        panic!("FENCELOCK_SEED={seed} shows a difference\n\n{steps}\n\n{}", difference.what);
    }
    Some(coverage)
}
