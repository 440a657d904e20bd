//! The client over real Redis servers that are frozen, killed, flushed and lied about.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[path = "../common/mod.rs"]
mod common;

/// These tests check the queue on the server, so leases are not shared; `sharing` tests those that are.
const SHARING: bool = false;

mod acks;
mod capabilities;
mod config;
mod foreign;
mod line;
mod outages;
mod protocols;
mod refusals;
mod sharing;
mod support;
mod takes_no_locks;
mod tenants;
mod trial;
mod wire;
