//! The client over real Redis servers that are frozen, killed, flushed and lied about.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod child;
mod config;
mod foreign;
mod line;
mod lost_replies;
mod outages;
mod processes;
mod protocols;
mod quorum;
mod refusals;
mod support;
mod wire;
