//! Examples with real processes and a real database: lost updates without a lock, a leader, a nightly job.
//!
//! | program | example | without a lock |
//! |---|---|---|
//! | `flash_sale` | one item in stock, hundreds of concurrent buyers | sold more than once |
//! | `bank` | a balance of 1000, with concurrent payments of 500 and 300 | 700 or 500 is left instead of 200 |
//!
//! ```sh
//! cargo run -p fencelock-examples --bin flash_sale -- --lock none
//! cargo run -p fencelock-examples --bin flash_sale
//! cargo run -p fencelock-examples --bin flash_sale -- --lock redis://127.0.0.1 --overrun
//! ```
//!
//! Both read a number, wait, and write the next number. The lock makes this safe for processes that respect their lease;
//! the fencing token, which the database checks in the same statement as the write, also rejects a process that does not.
#![forbid(unsafe_code)]

pub mod access;
pub mod ledger;
pub mod workers;

use std::process::ExitCode;

/// Compiles and runs the code of the documentation with the tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../README.zh-CN.md")]
    struct ReadmeInChinese;
    #[doc = include_str!("../../../crates/fencelock/README.md")]
    struct ReadmeOfTheLibrary;
    #[doc = include_str!("../../../docs/en/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/en/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/en/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/zh-CN/getting-started.md")]
    struct GettingStartedInChinese;
}

/// The error of an example.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The exit code of an example. The failure, if there is one, goes to standard error with the name of the program.
pub fn exit_code(program: &str, done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::FAILURE
        }
    }
}
