//! `cargo bench -p fencelock-bench --bench quorum`, with `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::quorum::main()
}
