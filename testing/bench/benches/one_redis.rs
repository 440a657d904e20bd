//! `cargo bench -p fencelock-bench`, with `-- --json` for machines and `-- --quick` for a look.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::main()
}
