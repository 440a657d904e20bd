//! Interleavings inside one process. The client is the one of production; the network, the users and time move only when
//! an explorer lets them, so every order of requests, answers, messages, timers, drops and cancellations can be had.
//!
//! Every scenario runs the first schedules of a small version, depth first, and random ones of a larger version; see
//! `explore.rs` for how a failure is replayed.
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
