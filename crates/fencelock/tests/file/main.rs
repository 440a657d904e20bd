//! Locks in files.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

mod faults;
mod kit;
mod locks;
mod match_key_table;
mod processes;
mod rows;
mod writers;

/// What another process runs.
#[test]
fn obey() {
    kit::process::obey();
}
