//! Worker processes, and what they and the process that started them say to each other: lines on stdin and stdout.
//!
//! ```text
//! harness                     worker
//! {job}                  ->
//!                        <-   ready          when it is connected
//! go                     ->                  to all workers at once
//!                        <-   {result}
//! ```
//!
//! The harness has a [`WorkerPool`]; a worker written in Rust has a [`Harness`]. No worker outlives the harness: a worker is
//! killed with its [`Worker`], and one that loses its harness ends by itself.

mod harness;
mod pool;

pub use harness::{Harness, OnEof};
pub use pool::{Worker, WorkerPool, start};

/// What a worker says when it is connected.
pub const READY: &str = "ready";
/// What it is told when all workers are.
pub const GO: &str = "go";
