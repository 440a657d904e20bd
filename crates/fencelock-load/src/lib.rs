//! Puts a place where locks live under load, from many processes, and measures how it bears it.
//!
//! A run has one harness and some workers. A worker is a process of many tasks; it is told what to do in one line, and tells
//! what came of it in another: see [`protocol`].
#![forbid(unsafe_code)]

pub mod protocol;
mod waits;

pub use waits::Waits;
