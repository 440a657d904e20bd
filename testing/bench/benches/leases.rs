//! `cargo bench -p fencelock-bench --bench leases`, with `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::leases::main()
}
