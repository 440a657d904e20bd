//! Puts a place where locks live under load, from many processes, and measures how it bears it.
//!
//! A run has one harness and some workers. A worker is a process of many tasks; it is told what to do in one line, and tells
//! what came of it in another: see [`protocol`]. The workers of this crate are the program that measures, started again: it
//! calls [`serve`] where it is told to. Workers of other languages are programs of their own.
//!
//! ```no_run
//! use fencelock_lab::load::{Plan, Workload, measure, serve};
//! use fencelock_lab::workers::WorkerPool;
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
//! let report = measure(&plan, &WorkerPool::default(), &worker, &|progress| println!("{}", progress.grants)).unwrap();
//! println!("{report}");
//! ```

mod census;
mod error;
mod ground;
mod measure;
mod plan;
pub mod protocol;
mod report;
mod run;
mod serve;
mod shop;
mod tally;
mod text;
mod trial;
mod waits;
mod wakeups;

pub use error::NotMeasured;
pub use measure::measure;
pub use plan::Plan;
pub use protocol::{Sharing, Workload};
pub use report::{Fairness, Report, Sale, Wait, jain};
pub use run::Progress;
pub use serve::serve;
pub use trial::try_out;
pub use waits::Waits;
