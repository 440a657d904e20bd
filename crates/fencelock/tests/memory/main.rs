//! The client over locks in memory, with leases and in driven time: hours pass in milliseconds.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[path = "../common/mod.rs"]
mod common;

/// See `memory_alone`.
const SHARING: bool = true;

mod blocking;
mod budget;
mod cancelling;
mod closing;
mod downgrading;
mod dropping;
mod election;
mod freshness;
mod holding;
mod idle_timeout;
mod last_reply;
mod log;
mod losing;
mod once;
mod parking;
mod paths;
mod reading;
mod reaping;
mod refusing;
mod releasing;
mod reusing;
mod running;
mod semaphore;
mod several_keys;
mod sharing;
mod slots;
mod threads;
mod waiting;
mod yielding;
