//! `cargo bench -p fencelock-bench --bench leases`, with `-- --json` for machines and `-- --quick` for a look.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::leases::main()
}
