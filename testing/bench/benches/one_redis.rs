//! `cargo bench -p fencelock-bench`, with `-- --json` for JSON and `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::main()
}
