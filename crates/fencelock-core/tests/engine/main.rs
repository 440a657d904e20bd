//! Explores orders of events over [`fencelock_core::engine::KeyEngine`], the client of production, without a runtime.
//!
//! A world is several clients with users, a network and one server. The server is the specification of a key, `KeyTable`.
//! Nothing moves by itself: a schedule is a list of choices, one
//! for each act, and the same choices give the same world. See `explore.rs` for how a failure is replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::tests_outside_test_module, missing_docs)]

mod announcing;
mod candidates;
mod checks;
mod client;
mod closing;
mod coverage;
mod digest;
mod every_state;
mod explore;
mod hand_off;
mod last_reply;
mod mode_mutants;
mod modes;
mod mutants;
mod network;
mod parking;
mod pass;
mod permits;
mod reduction;
mod regressions;
mod scenario;
mod scenarios;
mod server;
mod shrink;
mod sizes;
mod task;
mod user;
mod visited;
mod wind_down;
mod world;
