//! Worker processes, and the protocol between them and the process that started them: lines on stdin and stdout.
//!
//! ```text
//! harness                     worker
//! {job}                  ->
//!                        <-   ready          when it is connected
//! go                     ->                  to all workers at once
//!                        <-   {result}
//! ```
//!
//! The harness has a [`WorkerPool`]; a worker written in Rust has a [`Harness`]. No worker outlives the harness: a
//! worker is killed when its [`Worker`] is dropped, and exits by itself when its harness exits.

mod harness;
mod pool;

pub use harness::{Harness, OnEof};
pub use pool::{Worker, WorkerPool, start};

/// A worker sends this when it is connected.
pub const READY: &str = "ready";
/// The harness sends this when all workers are ready.
pub const GO: &str = "go";
