//! Rounds of faults on real servers. They wait for leases and failovers most of the time, so they run at the same time,
//! regardless of the number of cores.
//!
//! `FENCELOCK_CHAOS_SEED=N` runs another schedule.
#![allow(missing_docs, clippy::unwrap_used)]

mod cluster;
mod sentinel;
mod topologies;

fn seed() -> u64 {
    std::env::var("FENCELOCK_CHAOS_SEED").map_or(1, |seed| seed.parse().expect("FENCELOCK_CHAOS_SEED is a number"))
}
