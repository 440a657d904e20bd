//! The arguments of `fencelock lab`.

use crate::span;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use fencelock_lab::{Fault, Lang, Property, WorkloadKind, catalog, workload_scheme_ids};
use std::path::PathBuf;
use std::time::Duration;

/// Model-check well-known lock schemes and show how they fail.
///
/// For every scheme, the search covers all interleavings of steps, crashes and delays, and finds the shortest
/// counterexample to each property. Without SCHEME it prints a table of all schemes. With SCHEME it prints the steps of a
/// counterexample. With `--url` it replays the steps on a real Redis and compares every reply; it uses its own keys and
/// removes them.
///
/// `stock`, `bank` and `pool` run schemes as a workload on a real Redis and check the result.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) workload: Option<WorkloadCommand>,
    /// The scheme to show.
    #[arg(value_parser = PossibleValuesParser::new(schemes()), hide_possible_values = true)]
    pub(crate) scheme: Option<String>,
    /// The property to break.
    #[arg(long, value_name = "NAME", requires = "scheme", value_parser = PossibleValuesParser::new(properties()))]
    pub(crate) property: Option<String>,
    /// The fault that the counterexample must contain.
    #[arg(long, value_name = "NAME", requires = "scheme", value_parser = PossibleValuesParser::new(faults()))]
    pub(crate) fault: Option<String>,
    /// Show all counterexamples that were found.
    #[arg(long = "all", requires = "scheme", conflicts_with_all = ["svg", "replica"])]
    pub(crate) every: bool,
    /// Also draw the steps as SVG into FILE.
    #[arg(long, value_name = "FILE", requires = "scheme", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// The language of the output.
    #[arg(long, value_enum, default_value_t = LangArg::En)]
    pub(crate) lang: LangArg,
    /// A replica of the Redis of --url, for failover counterexamples: it is promoted, and then re-attached.
    #[arg(long, value_name = "URL", requires = "scheme", value_hint = ValueHint::Url)]
    pub(crate) replica: Option<String>,
    /// The length of a model tick on a real server; a lock lasts two ticks.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "100ms", requires = "scheme")]
    pub(crate) tick: Duration,
}

const EXAMPLES: &str = "\
Examples:
  fencelock lab                                     all schemes and properties
  fencelock lab s2-5-set-nx-ex                      the shortest counterexample of a scheme
  fencelock lab s2-5-set-nx-ex --all                all counterexamples
  fencelock lab s2-5-set-nx-ex --svg out.svg        as an SVG diagram
  fencelock lab s2-5-set-nx-ex --url redis://HOST   replayed on a real server
  fencelock lab --lang zh                           in Chinese
  fencelock lab stock --url redis://HOST            a flash sale, scheme by scheme
  fencelock lab bank --url redis://HOST --overrun   concurrent payments, some of them slow
  fencelock lab stock --url redis://HOST --pause    with paused processes
  fencelock lab stock --url redis://HOST --readers  readers and buyers: shared locks
  fencelock lab bank --url redis://HOST --transfers two locks for each transfer, and deadlocks
  fencelock lab pool --url redis://HOST --crash     semaphores whose holders crash

Exit status:
  0      success; with --url: every reply matched the model
  64     usage: an argument is invalid
  69     the server is unreachable, or a reply differed";

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WorkloadCommand {
    /// Run a flash sale on a real Redis: a small stock and many concurrent requests.
    ///
    /// Each request reads the stock and, if it is positive, writes it decremented by one. An oversold item proves that two
    /// holders overlapped. A request that finds the lock taken retries, until no request acquires the lock any more.
    Stock {
        /// Initial stock.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        stock: u32,
        /// Total number of requests.
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        requests: u32,
        /// Three of four requests only read: each reads the stock twice, and it must not change in between. fencelock acquires shared
        /// locks for them; the other schemes have only exclusive ones.
        #[arg(long)]
        readers: bool,
        #[command(flatten)]
        options: WorkloadArgs,
    },
    /// Run a bank on a real Redis: concurrent payments of 500 and 300 from accounts with a balance of 1000.
    ///
    /// Both payments read the balance and write it back, reduced by their amount. The final balance must be 200; 500 or 700
    /// is a lost update. Each account has its own lock.
    Bank {
        /// Total number of payments, two for each account, or of transfers, two for each pair of accounts.
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=100_000))]
        requests: u32,
        /// Transfer 500 and 300 in opposite directions between two accounts, which takes the locks of both: one after the other,
        /// or together with `lock_all`.
        #[arg(long)]
        transfers: bool,
        #[command(flatten)]
        options: WorkloadArgs,
    },
    /// Run a pool of connections on a real Redis: more users than connections, and a semaphore that admits them.
    ///
    /// Each request acquires a permit, uses a connection, and returns the permit. More users at the same time than there are
    /// connections prove that the semaphore admitted too many. A permit that is never returned leaves requests without a reply.
    Pool {
        /// Connections, each with a permit.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
        permits: u8,
        /// Total number of requests.
        #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        requests: u32,
        #[command(flatten)]
        options: WorkloadArgs,
    },
    /// A worker process of a workload; it reads its job from stdin.
    #[command(hide = true)]
    Worker,
}

/// The options of all workloads.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkloadArgs {
    /// The scheme: one of `fencelock lab`, `none` for no lock, or `all`.
    #[arg(long, value_name = "ID", default_value = ALL, value_parser = PossibleValuesParser::new(workload_schemes()))]
    #[arg(hide_possible_values = true)]
    pub(crate) scheme: String,
    /// Worker processes; each handles eight concurrent requests.
    #[arg(long, value_name = "P", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Some holders sleep past the end of their lease, between reading and writing.
    #[arg(long)]
    pub(crate) overrun: bool,
    /// Pause each process once before a write, until its lock has expired and another process holds it.
    #[arg(long)]
    pub(crate) pause: bool,
    /// Kill one process while it holds the lock; in a pool, one for each permit, of which there must be fewer.
    #[arg(long)]
    pub(crate) crash: bool,
    /// Time between reading and writing.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "2ms")]
    pub(crate) work: Duration,
    /// Also draw the results as SVG into FILE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// The language of the output.
    #[arg(long, value_enum, default_value_t = LangArg::En)]
    pub(crate) lang: LangArg,
}

/// All schemes of the workloads.
pub(super) const ALL: &str = "all";

/// Those of any workload; each one checks its own.
fn workload_schemes() -> Vec<&'static str> {
    let workloads = [WorkloadKind::Stock, WorkloadKind::Transfers, WorkloadKind::Pool];
    workloads.into_iter().flat_map(workload_scheme_ids).chain([ALL]).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LangArg {
    /// English.
    En,
    /// Chinese.
    Zh,
}

impl From<LangArg> for Lang {
    fn from(lang: LangArg) -> Self {
        match lang {
            LangArg::En => Self::En,
            LangArg::Zh => Self::Zh,
        }
    }
}

fn schemes() -> Vec<&'static str> {
    catalog().iter().map(|scheme| scheme.id).collect()
}

fn properties() -> [&'static str; 4] {
    Property::ALL.map(Property::name)
}

fn faults() -> [&'static str; 7] {
    Fault::ALL.map(Fault::name)
}

pub(super) fn property(name: &str) -> Option<Property> {
    Property::ALL.into_iter().find(|property| property.name() == name)
}

pub(super) fn fault(name: &str) -> Option<Fault> {
    Fault::ALL.into_iter().find(|fault| fault.name() == name)
}
