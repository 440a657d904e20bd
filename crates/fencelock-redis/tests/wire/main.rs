//! Clients of two versions on one server. `v<version>/` has the scripts of each version as its first client sends them, without
//! comments, and what that version writes (`format.txt`). A later version is simulated according to the rules
//! of the wire format.
//!
//! Two things can change:
//!
//! - **The scripts, and not the format.** This needs no new version, and the files here stay as they are: the tests run the first
//!   scripts of this version against the present ones, because clients of all releases with one version share locks.
//! - **The format.** `format.rs` then differs from `format.txt`. Raise `WIRE` in `scripts/wire.rs`, and run
//!   `FENCELOCK_UPDATE=1 cargo test -p fencelock-redis`: it writes the directory of the new version, and leaves that of the one before,
//!   which the client in `before.rs` then runs too. A directory is never written again. As long as no release has
//!   a version, delete its directory instead, and have it written. You may drop a version that is no longer in use.
//!
//! A completion has a version of its own, its first word. It is not part of a lock: a client that cannot read it runs nothing once per
//! window, and its locks, queues and elections work on. With a new `WIRE` for it, they would not. `format.rs` states the present version
//! (2), `v1/` that of its first client (1), and `first.rs` what the two do with the completions of each other.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod before;
mod current;
mod first;
mod format;
mod later;
mod log;
mod mixed;
