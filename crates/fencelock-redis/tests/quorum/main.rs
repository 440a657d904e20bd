//! Quorums: of nodes that the test controls, and of real servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod completions;
mod doctor;
mod faults;
mod kit;
mod readers;
mod rounds;
mod servers;
