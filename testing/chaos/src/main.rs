//! See `--help`.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use fencelock_chaos::{Failure, Form, Settings, report, run, run_if_asked, sim};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Breaks real Redis servers, networks, clocks and clients while locks are taken, and checks what happened.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// How long to go on; one round of all faults takes about a minute, and a round that has begun is ended.
    #[arg(long, default_value_t = 0.0)]
    minutes: f64,
    /// The schedule follows from it [default: a random one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Servers: 1 is a single Redis, 3 or 5 are a quorum.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// One Redis with a replica, which is promoted now and then.
    #[arg(long, conflicts_with = "nodes")]
    replica: bool,
    /// With a replica: without a quarantine, so that a promotion may let a second holder in.
    #[arg(long, requires = "replica")]
    bare: bool,
    /// Processes that take locks.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Where the history and the report go.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
}

/// What can be done without servers.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Runs the core in simulated worlds instead.
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
    let mut settings = Settings::new(seed, &std::env::current_exe()?);
    settings.form = match (arguments.replica, arguments.bare) {
        (true, false) => Form::Replica,
        (true, true) => Form::BareReplica,
        (false, _) => Form::of(arguments.nodes.into()),
    };
    settings.workers = arguments.workers.into();
    settings.length = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let run = run(&settings)?;
    fs::create_dir_all(&arguments.out)?;
    let history = arguments.out.join("history.jsonl");
    run.history.write(BufWriter::new(File::create(&history)?))?;
    print!("{}", run.verdict);
    let page = arguments.out.join("report.html");
    fs::write(&page, report::html(&settings, &run))?;
    println!("history: {}\nreport: {}", history.display(), page.display());
    Ok(if run.verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
