//! The client over real Redis servers that are frozen, killed, flushed and lied about.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[path = "../common/mod.rs"]
mod common;

mod config;
mod foreign;
mod lost_replies;
mod outages;
mod support;
mod wire;
