//! What `memory` tests, with clients whose tasks do not share leases: each task claims for itself.
//!
//! They run a second time because `sharing(false)` is another path through the client, from the claim to the release: the one
//! that the command line takes, and every library that wraps a single lock. It must change none of these promises. The files
//! that are only about sharing are not here, nor those about elections and windows, which never share leases.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[path = "../common/mod.rs"]
mod common;

const SHARING: bool = false;

#[path = "../memory/cancelling.rs"]
mod cancelling;
#[path = "../memory/closing.rs"]
mod closing;
#[path = "../memory/downgrading.rs"]
mod downgrading;
#[path = "../memory/dropping.rs"]
mod dropping;
#[path = "../memory/freshness.rs"]
mod freshness;
#[path = "../memory/holding.rs"]
mod holding;
#[path = "../memory/log.rs"]
mod log;
#[path = "../memory/losing.rs"]
mod losing;
#[path = "../memory/refusing.rs"]
mod refusing;
#[path = "../memory/releasing.rs"]
mod releasing;
#[path = "../memory/reusing.rs"]
mod reusing;
#[path = "../memory/running.rs"]
mod running;
#[path = "../memory/several_keys.rs"]
mod several_keys;
#[path = "../memory/waiting.rs"]
mod waiting;
