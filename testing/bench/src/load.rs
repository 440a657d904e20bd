//! Throughput and fairness of any backend under load, with the workloads of [`fencelock_load`].

use clap::{Parser, ValueEnum};
use fencelock::backends::scheme_of;
use fencelock_load::workers::WorkerPool;
use fencelock_load::{LoadReport, Plan, Workload, measure, preflight, serve};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Measure throughput and fairness of a backend under load.
///
/// Tasks in several processes acquire and release locks in a loop. The report shows grants per second, wait times, fairness
/// (Jain's index, 1 is perfectly fair), wasted wake-ups per grant, and commands per grant. It fails if two holders overlapped.
///
/// Each run uses its own keys and removes them afterwards. Do not use the servers for other work during a run: it distorts
/// the measurement, and its commands are counted.
#[derive(Debug, Parser)]
#[command(name = "fencelock-bench", after_help = EXAMPLES)]
struct Arguments {
    /// The URL of the backend.
    #[arg(long)]
    url: String,
    /// Write JSON: the fields of `LoadReport`.
    #[arg(long)]
    json: bool,
    /// The workload.
    #[arg(long, value_enum, default_value_t = Load::HotKey, value_name = "NAME")]
    workload: Load,
    /// Worker processes; each uses at most one core [default: 2, or 1 for memory:]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: Option<u32>,
    /// Tasks per process; each acquires one lock at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: u32,
    /// Number of keys of `many-keys`.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Initial stock of `flash-sale`.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    stock: u64,
    /// Duration of the measurement; a flash sale ends when the stock is sold.
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "3")]
    seconds: Duration,
    /// Seconds of warm-up before the measurement; a flash sale has none.
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "0.5")]
    warm_up: Duration,
    /// Do not share leases: each task claims the lock itself.
    #[arg(long)]
    no_sharing: bool,
}

const EXAMPLES: &str = "\
Examples, after `cargo run --release -p fencelock-bench -- --url redis://HOST`:
  --processes 4                            one hot key
  --workload uncontended --tasks 1
  --workload flash-sale --stock 100000     a stock that only the lock protects";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Load {
    /// One key per task: the cost of an uncontended lock.
    Uncontended,
    /// One key for all tasks.
    HotKey,
    /// A random key of --keys keys each time.
    ManyKeys,
    /// One lock that protects a stock: each holder reads it and writes it decremented by one. Verifies that nothing is sold twice.
    FlashSale,
}

impl Arguments {
    fn plan(&self) -> Plan {
        let workload = match self.workload {
            Load::Uncontended => Workload::Uncontended,
            Load::HotKey => Workload::HotKey,
            Load::ManyKeys => Workload::ManyKeys,
            Load::FlashSale => Workload::FlashSale,
        };
        // An invalid URL is reported when it is used.
        let alone = scheme_of(&self.url).is_ok_and(|scheme| !scheme.cross_process());
        Plan {
            processes: self.processes.unwrap_or(if alone { 1 } else { 2 }),
            tasks: self.tasks,
            keys: self.keys,
            warm_up: self.warm_up,
            span: self.seconds,
            stock: self.stock,
            unshared: self.no_sharing,
            ..Plan::new(&*self.url, workload)
        }
    }
}

/// The environment variable of a worker.
pub(crate) const WORKER: &str = "FENCELOCK_LOAD_WORKER";

/// Runs the job of a worker; `None` in the main process.
pub(crate) fn run_as_worker() -> Option<ExitCode> {
    std::env::var_os(WORKER)?;
    Some(ended(serve().map_err(Into::into)))
}

/// Measures with the settings in the arguments, and prints the report.
pub fn main() -> ExitCode {
    run_as_worker().unwrap_or_else(|| ended(run(&Arguments::parse())))
}

fn ended(done: Result<(), crate::Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencelock-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(wanted: &Arguments) -> Result<(), crate::Failure> {
    let (plan, pool) = (wanted.plan(), Arc::new(WorkerPool::default()));
    let runtime = Runtime::new()?;
    runtime.block_on(async { stop_by_signals(Arc::clone(&pool)) })?;
    let name = runtime.block_on(preflight(&plan))?;
    let this_program = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(WORKER, "1");
        Ok(command)
    };
    let report = measure(&plan, &pool, &this_program)?;
    if wanted.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        let shares = !wanted.no_sharing && wanted.tasks > 1;
        let sharing = if shares { ", leases are shared by the tasks of a process (see --no-sharing)" } else { "" };
        print!("{name}{sharing}\n{report}");
    }
    verdict(&report)
}

/// TERM or INT ends the load, which removes its keys. The second one ends this program.
fn stop_by_signals(pool: Arc<WorkerPool>) -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = term.recv() => (),
                _ = int.recv() => (),
            }
            if pool.is_stopped() {
                std::process::exit(1);
            }
            pool.stop();
        }
    });
    Ok(())
}

fn verdict(report: &LoadReport) -> Result<(), crate::Failure> {
    if report.sale.is_some_and(|sale| !sale.is_exact()) {
        return Err("two holders overlapped: the stock does not match the sales".into());
    }
    let errors = report.first_error.as_ref().map(|first| format!("errors: {}, the first: {first}", report.errors));
    errors.map_or(Ok(()), |errors| Err(errors.into()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let span = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| format!("{text:?} is not a number of seconds"))
}
