//! `./scripts/bench-peers` gets what this measures and runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::peers::main()
}
