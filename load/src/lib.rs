//! Measures throughput and fairness of a backend under load from many processes.
//!
//! A run has one harness and several workers. A worker is a process with many tasks. It receives a job as one line, and
//! returns a log as another: see [`protocol`]. The workers of this crate are the measuring program, started again with
//! [`serve`] as its entry point. Workers in other languages are separate programs.
//!
//! ```no_run
//! use fencelock_load::{Plan, Workload, measure, serve};
//! use fencelock_load::workers::WorkerPool;
//! use std::process::Command;
//!
//! if std::env::args().nth(1).as_deref() == Some("worker") {
//!     return serve().unwrap();
//! }
//! let plan = Plan::new("redis://127.0.0.1", Workload::HotKey);
//! let worker = || {
//!     let mut worker = Command::new(std::env::current_exe()?);
//!     worker.arg("worker");
//!     Ok(worker)
//! };
//! let report = measure(&plan, &WorkerPool::default(), &worker).unwrap();
//! println!("{report}");
//! ```
#![forbid(unsafe_code)]

mod command_counter;
mod error;
mod locks;
mod measure;
mod plan;
mod preflight;
pub mod protocol;
mod report;
mod run;
mod serve;
mod shop;
mod tally;
mod text;
mod waits;
mod wakeups;
pub mod workers;
mod workspace;

pub use error::NotMeasured;
pub use measure::measure;
pub use plan::Plan;
pub use preflight::preflight;
pub use protocol::Workload;
pub use report::{Fairness, LoadReport, Sale, Wait, jain};
pub use serve::serve;
pub use waits::Waits;
