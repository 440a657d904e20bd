//! Runs the conformance suite for the backends of this crate. To add a backend, add a file next to this one and a line here.

mod file;
mod memory;
mod memory_clocked;
mod memory_leases;

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_conformance::run(vec![
        memory::factory(),
        memory_leases::factory(),
        memory_clocked::factory(),
        file::factory(),
    ])
}
