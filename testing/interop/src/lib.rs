//! Other programs that lock the same keys: lock libraries of five languages, each behind the same few lines.
//!
//! A *peer* is a small program in `peers/` around one library. It is started with the ports of the Redis servers as its
//! arguments, says `ready` and its versions, then answers each line of its input with one line, and ends with its input.
//!
//! | it is told | it answers | |
//! |---|---|---|
//! | `try KEY TTL_MS` | `held` or `busy` | one attempt |
//! | `lock KEY TTL_MS WAIT_MS` | `held` or `busy` | waits in the library's own way |
//! | `unlock` | `freed` or `lost`; `done` if the library does not tell | gives its last lock back |
//! | `delete KEY` | `deleted` | a plain `DEL`, as of somebody who does not ask whose it is |
//! | `count KEY TTL_MS FILE TIMES` | `counted` | each time under the lock: reads the number in the file, pauses, writes the next |
//! | anything that fails | `error` and why | |
//!
//! Times are in milliseconds. A peer holds one lock at a time, and neither keys nor files have spaces.
//!
//! [`KNOWN`] lists the peers. `scripts/test` installs those that need Debian packages alone, `scripts/test-interop` all.
#![forbid(unsafe_code)]

mod known;
mod process;

pub use known::{KNOWN, Peer, Places, Preset, Shares};
pub use process::Process;
