//! `cargo bench -p fencelock-bench --bench postgres`, with `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::postgres::main()
}
