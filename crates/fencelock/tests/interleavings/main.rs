//! Interleavings inside one process. The client is the one of production, with its tokio driver; the network, the users and time move
//! only when a schedule lets them, so every order of requests, answers, messages, timers, drops and cancellations can be had.
//!
//! What the client decides is searched without tokio, in `fencelock-core/tests/engine`. Here are what only the driver does: wakers, and
//! futures, guards and clients that are dropped at any moment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::tests_outside_test_module)]

mod checks;
mod network;
mod scenarios;
mod stage;
mod threads;
mod user;
