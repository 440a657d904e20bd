//! Interleavings inside one process. The client is the one of production; the network, the users and time move only when
//! an explorer lets them, so every order of requests, answers, messages, timers, drops and cancellations can be had.
//!
//! Every scenario runs all schedules of a small version and random ones of a larger; see `explore.rs` for how a failure
//! is replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::tests_outside_test_module)]

mod checks;
mod choices;
mod explore;
mod mutants;
mod network;
mod scenarios;
mod script;
mod stage;
mod threads;
mod user;
