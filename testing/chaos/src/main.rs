//! See `--help`.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use fencelock_chaos::{
    Failure, Pooler, Settings, Topology, outages, partition_summary, report, resumption_summary, run, run_if_asked, sim,
};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Injects faults into real servers, networks, clocks and clients that use locks, and checks the history
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// The minimum duration; one round of all faults takes about a minute, and a started round is completed
    #[arg(long, default_value_t = 0.0)]
    minutes: f64,
    /// The seed of the schedule [default: random, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// The number of servers: 1 is a single Redis server, 3 or 5 are a quorum
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// One Redis server with a replica, which is promoted from time to time
    #[arg(long, conflicts_with = "nodes")]
    replica: bool,
    /// A Redis master with two replicas and three sentinels
    #[arg(long, conflicts_with_all = ["nodes", "replica"])]
    sentinel: bool,
    /// PostgreSQL with a standby, without a pooler or behind one
    #[arg(long, value_name = "POOLER", num_args = 0..=1, default_missing_value = "direct", value_enum)]
    #[arg(conflicts_with_all = ["nodes", "replica", "sentinel", "cluster", "bare"])]
    postgres: Option<Pooler>,
    /// A store of objects at this URL, which has an endpoint=http://127.0.0.1:PORT and credentials in the environment
    #[arg(long, value_name = "URL")]
    #[arg(conflicts_with_all = ["nodes", "replica", "sentinel", "postgres", "cluster", "bare"])]
    objects: Option<String>,
    #[command(flatten)]
    of_cluster: OfCluster,
    /// With --replica or --sentinel: no quarantine, so a promotion may admit a second holder
    #[arg(long)]
    bare: bool,
    /// The number of worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// The directory of the history and the report
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
}

/// Arguments of runs on a cluster.
#[derive(Debug, clap::Args)]
struct OfCluster {
    /// A Redis Cluster of three masters with a replica each
    #[arg(long, conflicts_with_all = ["nodes", "replica", "sentinel", "bare"])]
    cluster: bool,
    /// With --cluster: slots move, and no master is replaced, so no lock may be lost
    #[arg(long, requires = "cluster")]
    moves_only: bool,
}

/// Commands without servers.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Simulate processes, nodes and a network instead
    Simulate(sim::Arguments),
}

fn main() -> ExitCode {
    if let Some(code) = run_if_asked() {
        return code;
    }
    match perform(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the run failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if let Some(Instead::Simulate(arguments)) = &arguments.instead {
        return sim::command(arguments);
    }
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => getrandom::u32()?.into(),
    };
    println!("seed {seed}");
    let mut settings = Settings::new(seed, topology(arguments)?, &std::env::current_exe()?);
    settings.workers = arguments.workers.into();
    settings.objects = arguments.objects.clone().unwrap_or_default();
    settings.length = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let run = run(&settings)?;
    fs::create_dir_all(&arguments.out)?;
    let history = arguments.out.join("history.jsonl");
    run.history.write(BufWriter::new(File::create(&history)?))?;
    print!("{}", run.results);
    for summary in [resumption_summary(&run.history), partition_summary(&run.history)].into_iter().flatten() {
        println!("{summary}");
    }
    for outages in outages(&run.history) {
        println!("{outages}");
    }
    let page = arguments.out.join("report.html");
    fs::write(&page, report::html(&settings, &run))?;
    println!("history: {}\nreport: {}", history.display(), page.display());
    Ok(if run.results.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn topology(arguments: &Arguments) -> Result<Topology, Failure> {
    if let Some(pooler) = arguments.postgres {
        return Ok(Topology::Postgres(pooler));
    }
    if arguments.objects.is_some() {
        return Ok(Topology::Objects);
    }
    Ok(match (arguments.replica, arguments.sentinel, arguments.bare) {
        _ if arguments.of_cluster.moves_only => Topology::ClusterMoves,
        _ if arguments.of_cluster.cluster => Topology::Cluster,
        (true, _, false) => Topology::Replica,
        (true, _, true) => Topology::BareReplica,
        (_, true, false) => Topology::Sentinels,
        (_, true, true) => Topology::BareSentinels,
        (false, false, true) => return Err("--bare needs --replica or --sentinel".into()),
        (false, false, false) => Topology::of(arguments.nodes.into()),
    })
}
