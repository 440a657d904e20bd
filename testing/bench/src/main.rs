//! `cargo run --release -p fencelock-bench -- --url URL`

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_bench::load::main()
}
