//! Measures fencelock on one Redis server, in [`quorum`] on several, in [`leases`] the cost of many leases, in
//! [`server_cpu`] what a cycle costs the server, in [`objects`] on a store of objects, in
//! [`peers`] compared with other libraries, and in [`load`] a backend of yours under load. Each figure is a ratio of two values that were measured alternately, in one run,
//! on one machine.
//!
//! | workload | against |
//! |---|---|
//! | `uncontended` | the same two scripts sent with the bare `redis` client |
//! | `handoff` | the round trip of a `PING` |
//! | `server_time` | an empty script |
//! | `idle` | for the wait: the hand-off |
//! | `local` | the same tasks, each with its own claims |
//! | `hot_key` | two ways to wake waiters by pub/sub, and polling |
//!
//! The run starts its own server on a free port, without persistence.
#![forbid(unsafe_code)]

mod bare;
mod handoff;
mod hot_key;
mod idle;
mod info;
mod job;
pub mod leases;
pub mod load;
pub mod local;
pub mod objects;
pub mod peers;
pub mod quorum;
pub mod report;
pub mod server_cpu;
mod server_time;
mod uncontended;
mod wait_strategy;
mod worker;
mod workers;

use fencelock_testkit::RedisServer;
use report::BenchReport;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;
use wait_strategy::WaitStrategy;

/// The effort of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The duration of one measurement.
    pub span: Duration,
    /// The number of pairs of measurements; the median counts.
    pub pairs: usize,
}

impl Effort {
    const FULL: Self = Self { span: Duration::from_secs(3), pairs: 5 };
    const QUICK: Self = Self { span: Duration::from_millis(500), pairs: 3 };

    /// Whether the run is a short one.
    pub fn is_quick(self) -> bool {
        self.pairs == Self::QUICK.pairs
    }
}

/// Runs all workloads, and prints a table.
pub fn main() -> ExitCode {
    if let Some(code) = worker::run_as_worker() {
        return code;
    }
    with_arguments(measure)
}

/// Measures with the settings in the arguments, and prints the result.
pub fn with_arguments<R: Display>(measure: impl Fn(Effort) -> Result<R, Failure>) -> ExitCode {
    let mut effort = Effort::FULL;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--bench" => {}
            "--quick" => effort = Effort::QUICK,
            unknown => {
                eprintln!("unknown argument {unknown}; the option is --quick");
                return ExitCode::from(64);
            }
        }
    }
    match measure(effort) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the measurement failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Why a measurement failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

fn measure(effort: Effort) -> Result<BenchReport, Failure> {
    let server = RedisServer::start()?;
    let url = server.url();
    let mut report = BenchReport { machine: report::machine(&server), ..BenchReport::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        for tasks in [1, 256] {
            report.uncontended.push(uncontended::measure(&url, tasks, effort).await?);
        }
        report.server_time = server_time::measure(&url).await?;
        report.idle = Some(idle::measure(&url, effort).await?);
        report.local = local::measure(&url, effort).await?;
        Ok::<_, Failure>(())
    })?;
    report.handoff = Some(handoff::measure(&url, effort)?);
    for strategy in WaitStrategy::ALL {
        report.hot_key.push(hot_key::measure(&url, strategy, effort)?);
    }
    Ok(report)
}
