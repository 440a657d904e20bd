//! `FENCELOCK_OBJECTS='s3://...' cargo bench -p fencelock-bench --bench objects`, with `-- --quick` for a short run.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::objects::main()
}
