//! See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock_chaos::{Failure, Settings, report, run, run_if_asked};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Breaks real Redis servers, networks, clocks and clients while locks are taken, and checks what happened.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to go on; one round of all faults takes half a minute, and a round that has begun is ended.
    #[arg(long, default_value_t = 0.0)]
    minutes: f64,
    /// The schedule follows from it [default: a random one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Servers: 1 is a single Redis, 3 or 5 are a quorum.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// Processes that take locks.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Where the history and the report go.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
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
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => getrandom::u32()?.into(),
    };
    println!("seed {seed}");
    let mut settings = Settings::new(seed, &std::env::current_exe()?);
    settings.nodes = arguments.nodes.into();
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
