//! Locks on a real cluster, while its slots are moved and its masters replaced.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod addresses;
mod failovers;
mod kit;
mod moves;
mod wake_ups;
