//! Clients of two versions on one server. The scripts of the previous version are in `v0/`, as they were sent; a later version is
//! simulated according to the rules of the wire format.
//!
//! If you change the wire format, put the scripts of the previous version beside those in `v0/`, each composed as in
//! `redis/script.rs`, with a client like the one in `before.rs`. You may drop a version that is no longer in use.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod before;
mod current;
mod later;
mod log;
mod mixed;
mod shared;
