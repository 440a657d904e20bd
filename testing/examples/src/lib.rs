//! Two stories of what goes wrong without a lock, told by real processes on a real database.
//!
//! | program | story | without a lock |
//! |---|---|---|
//! | `flash_sale` | one piece in stock, hundreds of buyers at once | sold more than once |
//! | `bank` | a balance of 1000, of which 500 and 300 are spent at once | 700 or 500 is left instead of 200 |
//!
//! ```sh
//! cargo run -p fencelock-examples --bin flash_sale -- --lock none
//! cargo run -p fencelock-examples --bin flash_sale
//! cargo run -p fencelock-examples --bin flash_sale -- --lock redis://127.0.0.1 --overrun
//! ```
//!
//! Both do what a careless program does: read a number, think, write the number that follows. The lock makes that safe
//! among processes that keep to their lease; the fencing token, checked by the database in the same statement as the
//! write, also stops one that does not.
#![forbid(unsafe_code)]

pub mod door;
pub mod ledger;
pub mod workers;

/// The code in the pages for people is compiled and run with the tests.
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
    #[doc = include_str!("../../../docs/zh-CN/library.md")]
    struct LibraryInChinese;
}

/// Whatever ends a story early, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
