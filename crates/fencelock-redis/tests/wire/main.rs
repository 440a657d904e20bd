//! Clients of two versions on one server. The scripts of the version before are in `v0/`, as they were sent; a later version is made
//! up from what the rules of the wire leave to it.
//!
//! Who changes the wire puts the scripts of the version until then beside those in `v0/`, each composed as in `redis/script.rs`, with a
//! client like the one in `before.rs`, and may drop a version that nobody runs any more.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod before;
mod current;
mod later;
mod mixed;
mod shared;
