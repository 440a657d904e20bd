//! The arguments of `fencelock bench`.

use crate::span;
use clap::{Args, Subcommand, ValueEnum};
use fencelock::backends::scheme_of;
use fencelock_load::{LoadMode, Plan, Sharing, Workload};
use std::time::Duration;

/// Measure throughput and fairness of a backend under load.
///
/// Tasks in several processes acquire and release locks in a loop. The report shows grants per second, wait times, fairness
/// (Jain's index, 1 is perfectly fair), wasted wake-ups per grant, and commands per grant.
///
/// Each run uses its own keys and removes them afterwards. Do not use the servers for other work during a run: it distorts
/// the measurement, and its commands are counted.
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    /// The workload.
    #[arg(long, value_enum, default_value_t = Load::HotKey, value_name = "NAME")]
    pub(crate) workload: Load,
    /// Worker processes; each uses at most one core [default: 2, or 1 for memory:]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: Option<u32>,
    /// Tasks per process; each acquires one lock at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) tasks: u32,
    /// Number of keys of `many-keys`.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: u32,
    /// Initial stock of `flash-sale`.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) stock: u64,
    /// Duration of the measurement; a flash sale ends when the stock is sold.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "3s")]
    pub(crate) seconds: Duration,
    /// Warm-up before the measurement; a flash sale has none.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "500ms")]
    pub(crate) warm_up: Duration,
    /// Acquire shared locks.
    #[arg(short, long, help_heading = "Modes", conflicts_with_all = ["permits", "slots", "together"])]
    pub(crate) shared: bool,
    /// With --shared: the percentage of claims that are exclusive, such as 1 or 0.5.
    #[arg(long, value_name = "PERCENT", value_parser = millionths, help_heading = "Modes", requires = "shared")]
    pub(crate) writers: Option<u32>,
    /// Acquire permits of a semaphore with N permits.
    #[arg(long, value_name = "N", help_heading = "Modes", conflicts_with_all = ["slots", "together"],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) permits: Option<u32>,
    /// With --permits: the permits of each claim [default: 1]
    #[arg(long, value_name = "W", help_heading = "Modes", requires = "permits", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) weight: Option<u32>,
    /// Acquire one of N numbered slots.
    #[arg(long, value_name = "N", help_heading = "Modes", conflicts_with = "together",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) slots: Option<u32>,
    /// Acquire K keys together, all or none: the same ones each time, or with `many-keys` K random ones.
    #[arg(long, value_name = "K", help_heading = "Modes", value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) together: Option<u32>,
    /// Prefix of all keys.
    #[arg(long, value_name = "PREFIX", default_value = "fencelock-bench")]
    pub(crate) key: String,
    /// Do not share leases: each task claims the lock itself.
    #[arg(long, help_heading = "Sharing", conflicts_with_all = ["batch", "idle_timeout"])]
    pub(crate) no_sharing: bool,
    /// Maximum number and duration of consecutive grants within a process while others wait [default: 64,10ms]
    #[arg(long, value_name = "N,DURATION", value_parser = batch, help_heading = "Sharing")]
    pub(crate) batch: Option<(u32, Duration)>,
    /// How long an idle lease is kept for the next task of the process, at most 10ms on backends that do not announce waiters
    /// [default: 0]
    #[arg(long, value_name = "DURATION", value_parser = span::parse, help_heading = "Sharing")]
    pub(crate) idle_timeout: Option<Duration>,
}

const AFTER: &str = "\
Examples:
  fencelock bench                                      locks in files
  fencelock bench --url redis://HOST --processes 4     one hot key on Redis
  fencelock bench --workload uncontended --tasks 1 --url redis://HOST
  fencelock bench --workload flash-sale --stock 100000 --url redis://HOST
  fencelock bench --shared --writers 1 --url redis://HOST   readers, 1 % writers
  fencelock bench --permits 8 --url redis://HOST       a semaphore of 8 permits
  fencelock bench --slots 8 --url redis://HOST         8 numbered slots
  fencelock bench --workload many-keys --together 2 --url redis://HOST
  fencelock bench --json --url redlock://HOST,HOST,HOST

Fields of the JSON:
  workload, mode, processes, tasks, keys  parameters of the run
  warm_up_ms, span_ms                     durations
  grants, grants_per_s                    acquired locks
  wait_us: p50, p90, p99, p99.9, max      wait times, microseconds
  reader_wait_us, writer_wait_us          the same of readers, and of the
                                            writers among them, or null
  writer_grants                           of readers: the exclusive, or null
  fairness: jain_tasks, jain_processes,   Jain's index; the longest wait in
    longest_over_median, empty_handed       median waits; tasks without a grant
  wasted_wakeups_per_grant                wake-ups without a grant
  commands_per_grant                      sum over all servers, or null
  server_us_per_grant                     processor time of all servers, or null
  audit: checked, conflicts,              with a mode, of hot-key, or null:
    most_permits                            changes of the holders; conflicts,
                                            which must be 0; the most permits or
                                            slots in use at once
  sale: stock, left, sold, oversold,      of flash-sale, or null; the last two
    out_of_order                            are 0 if no two holders overlapped
  errors, first_error                     failed attempts
  waits                                   histogram: pairs of wait and count

Exit status:
  0      success
  64     usage: an argument is invalid, or not supported by the backend
  69     the backend is unreachable, or returned errors
  76     two holders overlapped: an item was sold twice, or a conflict was found
  128+N  terminated by signal N; all keys are removed";

/// Internal subcommands.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Role {
    /// A worker process; it reads its job from stdin.
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// One key per task: the cost of an uncontended lock.
    Uncontended,
    /// One key for all tasks. With a mode, such as --shared, verifies that no holders are in conflict.
    HotKey,
    /// A random key of --keys keys each time.
    ManyKeys,
    /// One lock that protects a stock: each holder reads it and writes it decremented by one. Verifies that nothing is sold twice.
    FlashSale,
}

impl Bench {
    /// The plan of the measurement.
    pub(super) fn plan(&self, url: String) -> Plan {
        let workload = match self.workload {
            Load::Uncontended => Workload::Uncontended,
            Load::HotKey => Workload::HotKey,
            Load::ManyKeys => Workload::ManyKeys,
            Load::FlashSale => Workload::FlashSale,
        };
        let usual = Plan::new(url, workload);
        // An invalid URL is reported when it is used.
        let alone = scheme_of(&usual.url).is_ok_and(|scheme| !scheme.cross_process());
        let processes = if alone { 1 } else { usual.processes };
        Plan {
            processes: self.processes.unwrap_or(processes),
            tasks: self.tasks,
            keys: self.keys,
            warm_up: self.warm_up,
            span: self.seconds,
            stock: self.stock,
            key: self.key.clone(),
            mode: self.mode(),
            sharing: Sharing {
                off: self.no_sharing,
                batch: self.batch.map(|(grants, span)| (grants, crate::json::millis(span))),
                idle_timeout_us: self
                    .idle_timeout
                    .map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
            },
            ..usual
        }
    }
}

impl Bench {
    fn mode(&self) -> LoadMode {
        match (self.permits, self.slots, self.together) {
            (Some(limit), ..) => LoadMode::Permits { limit, weight: self.weight.unwrap_or(1) },
            (_, Some(slots), _) => LoadMode::Slots { slots },
            (.., Some(keys)) => LoadMode::Together { keys },
            _ if self.shared => LoadMode::Shared { writers_ppm: self.writers.unwrap_or(0) },
            _ => LoadMode::Exclusive,
        }
    }
}

/// A percentage in millionths.
fn millionths(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>();
    let percent = percent.ok().filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("{text:?} is not a percentage; write a number from 0 to 100"))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a million")]
    Ok((percent * 1e4).round() as u32)
}

fn batch(text: &str) -> Result<(u32, Duration), String> {
    let invalid = || format!("{text:?} is not a batch; write a number and a duration: 64,10ms");
    let (grants, span) = text.split_once(',').ok_or_else(invalid)?;
    let grants = grants.parse().ok().filter(|grants| *grants > 0).ok_or_else(invalid)?;
    Ok((grants, span::parse(span)?))
}
