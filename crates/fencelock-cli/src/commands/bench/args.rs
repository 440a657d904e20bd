//! What `fencelock bench` understands.

use crate::span;
use clap::{Args, Subcommand, ValueEnum};
use fencelock::backends::scheme_of;
use fencelock_lab::load::{Plan, Sharing, Workload};
use std::time::Duration;

/// Put the place where locks live under load, and measure how it bears it.
///
/// Processes of many tasks ask for locks, let them go and ask again. What is shown: grants per second; how long tasks waited;
/// whether all got the same (Jain's index: 1 if they did); how often a waiter was woken in vain; and how many commands the
/// servers were sent for each grant.
///
/// The keys of a run have names of its own, and are removed afterwards. Nobody else should use the servers meanwhile: they
/// would slow each other down, and their commands would be counted.
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    /// What the tasks ask for.
    #[arg(long, value_enum, default_value_t = Load::HotKey, value_name = "NAME")]
    pub(crate) workload: Load,
    /// Worker processes; each uses one core at most [default: 2, in memory 1]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: Option<u32>,
    /// Tasks of each process; each asks for one lock at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) tasks: u32,
    /// Keys of `many-keys`.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: u32,
    /// Pieces of `flash-sale`.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) stock: u64,
    /// How long to measure; a sale ends when all is sold.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "3s")]
    pub(crate) seconds: Duration,
    /// How long nothing counts before that; a sale has no warm-up.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "500ms")]
    pub(crate) warm_up: Duration,
    /// What the names of all keys begin with.
    #[arg(long, value_name = "PREFIX", default_value = "fencelock-bench")]
    pub(crate) key: String,
    /// Each task claims for itself; without it the tasks of a process share a lease.
    #[arg(long, help_heading = "Sharing", conflicts_with_all = ["batch", "linger"])]
    pub(crate) no_sharing: bool,
    /// Grants within a process before others get their turn: a number, and how long that may last [default: 64,10ms]
    #[arg(long, value_name = "N,DURATION", value_parser = batch, help_heading = "Sharing")]
    pub(crate) batch: Option<(u32, Duration)>,
    /// How long a free lease is kept for the next task of the process, at most 10ms [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = linger, help_heading = "Sharing")]
    pub(crate) linger: Option<Duration>,
}

const AFTER: &str = "\
Examples:
  fencelock bench                                                   files of this machine
  fencelock bench --url redis://HOST --processes 4                  a hot key on Redis
  fencelock bench --workload uncontended --tasks 1 --url redis://HOST
  fencelock bench --workload flash-sale --stock 100000 --seconds 30 --url redis://HOST
  fencelock bench --json --url redlock://HOST,HOST,HOST             for programs

Fields of the JSON:
  workload, processes, tasks, keys           what was measured
  warm_up_ms, span_ms                        how long
  grants, grants_per_s                       locks that were given
  wait_us: p50, p90, p99, p99.9, max         from asking to having the lock, microseconds
  fairness: jain_tasks, jain_processes,      1 if all got the same; the longest wait in
    longest_over_median, empty_handed          median waits; tasks that got nothing
  wasted_wakeups_per_grant                   asked again, still taken
  commands_per_grant                         sent to all servers together, or null
  sale: stock, left, sold, oversold,         of flash-sale, or null; the last two are 0
    out_of_order                               if no two were in at once
  errors, first_error                        attempts that ended without a lock
  waits                                      all waits: pairs of microseconds and how often

Exit status:
  0      measured
  64     usage: an argument cannot be used, or not at this place
  69     the place cannot be reached, or gave errors meanwhile
  76     two were in at once: something was sold twice
  128+N  ended by signal N; nothing is left behind";

/// A part of the command that only the command itself uses.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Role {
    /// One of the processes of a load: its job comes from stdin.
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// Each task has a key of its own: what a lock costs that nobody else wants.
    Uncontended,
    /// One key that everybody wants.
    HotKey,
    /// One of --keys keys, drawn at random each time.
    ManyKeys,
    /// One lock, under which a stock is read and written less one: the books must show that nothing was sold twice.
    FlashSale,
}

impl Bench {
    /// What is to be measured at this place.
    pub(super) fn plan(&self, url: String) -> Plan {
        let workload = match self.workload {
            Load::Uncontended => Workload::Uncontended,
            Load::HotKey => Workload::HotKey,
            Load::ManyKeys => Workload::ManyKeys,
            Load::FlashSale => Workload::FlashSale,
        };
        let usual = Plan::new(url, workload);
        // What is wrong with the URL is said when it is used.
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
            sharing: Sharing {
                off: self.no_sharing,
                batch: self.batch.map(|(grants, span)| (grants, crate::json::millis(span))),
                linger_us: self.linger.map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
            },
            ..usual
        }
    }
}

fn batch(text: &str) -> Result<(u32, Duration), String> {
    let invalid = || format!("{text:?} is not a batch; write a number and a duration: 64,10ms");
    let (grants, span) = text.split_once(',').ok_or_else(invalid)?;
    let grants = grants.parse().ok().filter(|grants| *grants > 0).ok_or_else(invalid)?;
    Ok((grants, span::parse(span)?))
}

fn linger(text: &str) -> Result<Duration, String> {
    let span = span::parse(text)?;
    let longest = Duration::from_millis(10);
    if span > longest { Err("a free lease lingers for at most 10ms".to_owned()) } else { Ok(span) }
}
