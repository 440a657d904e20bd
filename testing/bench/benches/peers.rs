//! `./scripts/bench-peers` installs the libraries and runs this benchmark.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::peers::main()
}
