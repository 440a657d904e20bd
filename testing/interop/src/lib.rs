//! Other programs that use the same keys: lock libraries of five languages, each with the same protocol.
//!
//! A *peer* is a small program in `peers/` that uses one library. Its arguments are the ports of the Redis servers. It
//! prints `ready` and its versions, then answers each line of its stdin with one line, and exits when its stdin ends.
//!
//! | request | reply | |
//! |---|---|---|
//! | `try KEY TTL_MS` | `held` or `busy` | one attempt |
//! | `lock KEY TTL_MS WAIT_MS` | `held` or `busy` | waits like the library does |
//! | `unlock` | `freed` or `lost`; `done` if the library does not report it | releases its last lock |
//! | `delete KEY` | `deleted` | a plain `DEL`, without checking the owner |
//! | `count KEY TTL_MS FILE TIMES` | `counted` | each time with the lock: reads the number in the file, waits, writes the next |
//! | any failure | `error` and the reason | |
//!
//! Times are in milliseconds. A peer holds one lock at a time, and neither keys nor files contain spaces.
//!
//! [`KNOWN`] lists the peers. `scripts/test` installs those that need only Debian packages, `scripts/test-interop` all.
#![forbid(unsafe_code)]

mod known;
mod process;

pub use known::{KNOWN, Peer, Preset, Servers, Shares};
pub use process::Process;
