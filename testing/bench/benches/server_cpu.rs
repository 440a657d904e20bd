//! `cargo bench -p fencelock-bench --bench server_cpu`, with `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::server_cpu::main()
}
