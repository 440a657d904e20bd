//! Throughput and fairness of any backend under load, with the workloads of [`fencelock_load`].

use clap::{Parser, ValueEnum};
use fencelock::backends::scheme_of;
use fencelock_load::workers::WorkerPool;
use fencelock_load::{LoadMode, LoadReport, Plan, Sharing, Workload, measure, preflight, serve};
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
    /// Acquire shared locks.
    #[arg(long, conflicts_with_all = ["permits", "slots", "together"])]
    shared: bool,
    /// With --shared: the percentage of claims that are exclusive, such as 1 or 0.5.
    #[arg(long, value_name = "PERCENT", value_parser = millionths, requires = "shared")]
    writers: Option<u32>,
    /// Acquire permits of a semaphore with N permits.
    #[arg(long, value_name = "N", conflicts_with_all = ["slots", "together"],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    permits: Option<u32>,
    /// With --permits: the permits of each claim.
    #[arg(long, value_name = "W", requires = "permits", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    weight: u32,
    /// Acquire one of N numbered slots.
    #[arg(long, value_name = "N", conflicts_with = "together", value_parser = clap::value_parser!(u32).range(1..=1000))]
    slots: Option<u32>,
    /// Acquire K keys together, all or none: the same ones each time, or with `many-keys` K random ones.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..=16))]
    together: Option<u32>,
    /// Prefix of all keys.
    #[arg(long, value_name = "PREFIX", default_value = "fencelock-bench")]
    key: String,
    /// Do not share leases: each task claims the lock itself.
    #[arg(long, conflicts_with_all = ["batch", "idle_timeout"])]
    no_sharing: bool,
    /// Maximum number and milliseconds of consecutive grants within a process while others wait [default: 64,10]
    #[arg(long, value_name = "N,MS", value_parser = batch)]
    batch: Option<(u32, u64)>,
    /// Milliseconds for which an idle lease is kept for the next task of the process, at most 10 on backends that do not announce
    /// waiters.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    idle_timeout: u64,
}

const EXAMPLES: &str = "\
Examples, after `cargo run --release -p fencelock-bench -- --url redis://HOST`:
  --processes 4                            one hot key
  --workload uncontended --tasks 1
  --workload flash-sale --stock 100000     a stock that only the lock protects
  --shared --writers 1                     readers, 1 % writers
  --permits 8                              a semaphore of 8 permits
  --workload many-keys --together 2";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Load {
    /// One key per task: the cost of an uncontended lock.
    Uncontended,
    /// One key for all tasks. With a mode, such as --shared, verifies that no holders are in conflict.
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
        let idle_timeout_us = self.idle_timeout.saturating_mul(1000);
        Plan {
            processes: self.processes.unwrap_or(if alone { 1 } else { 2 }),
            tasks: self.tasks,
            keys: self.keys,
            warm_up: self.warm_up,
            span: self.seconds,
            stock: self.stock,
            key: self.key.clone(),
            mode: self.mode(),
            sharing: Sharing { off: self.no_sharing, batch: self.batch, idle_timeout_us },
            ..Plan::new(&*self.url, workload)
        }
    }

    fn mode(&self) -> LoadMode {
        match (self.permits, self.slots, self.together) {
            (Some(limit), ..) => LoadMode::Permits { limit, weight: self.weight },
            (_, Some(slots), _) => LoadMode::Slots { slots },
            (.., Some(keys)) => LoadMode::Together { keys },
            _ if self.shared => LoadMode::Shared { writers_ppm: self.writers.unwrap_or(0) },
            _ => LoadMode::Exclusive,
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
    if report.audit.is_some_and(|audit| audit.conflicts > 0) {
        return Err("two holders were in conflict".into());
    }
    let errors = report.first_error.as_ref().map(|first| format!("errors: {}, the first: {first}", report.errors));
    errors.map_or(Ok(()), |errors| Err(errors.into()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let span = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| format!("{text:?} is not a number of seconds"))
}

/// A percentage in millionths.
fn millionths(text: &str) -> Result<u32, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("{text:?} is not a percentage; write a number from 0 to 100"))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a million")]
    Ok((percent * 1e4).round() as u32)
}

fn batch(text: &str) -> Result<(u32, u64), String> {
    let pair = text.split_once(',').and_then(|(grants, ms)| Some((grants.parse().ok()?, ms.parse().ok()?)));
    pair.filter(|(grants, _)| *grants > 0).ok_or_else(|| format!("{text:?} is not a batch; write 64,10"))
}
