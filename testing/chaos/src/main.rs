//! See `--help`.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use fencelock_chaos::{Failure, ServerArguments, Settings, outages, run, run_if_asked, sim};
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
    #[command(flatten)]
    servers: ServerArguments,
    /// The number of worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// The directory of the history
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
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
    let mut settings = Settings::new(seed, arguments.servers.topology()?, &std::env::current_exe()?);
    settings.workers = arguments.workers.into();
    settings.objects = arguments.servers.objects.clone().unwrap_or_default();
    settings.length = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let run = run(&settings)?;
    fs::create_dir_all(&arguments.out)?;
    let history = arguments.out.join("history.jsonl");
    run.history.write(BufWriter::new(File::create(&history)?))?;
    print!("{}", run.results);
    for outages in outages(&run.history) {
        println!("{outages}");
    }
    println!("history: {}", history.display());
    Ok(if run.results.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
