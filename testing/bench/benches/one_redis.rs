//! `cargo bench -p fencelock-bench`, with `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::main()
}
