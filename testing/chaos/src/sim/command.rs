use super::{Batch, Mutant, Scenario, Trace, batch, simulate};
use crate::Failure;
use crate::checker::check;
use crate::recorder::now;
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs::File, io::BufWriter, path::PathBuf, thread};

/// Runs the production client in simulated worlds, and checks the histories.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Number of worlds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of nodes: one server with a queue, or a quorum
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: u8,
    /// The protection to remove
    #[arg(long)]
    mutant: Option<Mutant>,
    /// Print each event of the first world, and run no other
    #[arg(long)]
    trace: bool,
    /// Write the history of the first world to this file
    #[arg(long)]
    history: Option<PathBuf>,
}

/// # Errors
/// I/O errors while the history is written.
pub fn command(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.trace || arguments.history.is_some() {
        return one(arguments);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let begun = now();
    let Arguments { seed, seeds, nodes, mutant, .. } = *arguments;
    let batch = batch(seed, seeds, nodes.into(), mutant, threads)?;
    report(&batch, Duration::from_micros(now().saturating_sub(begun)).as_secs_f64());
    for finding in batch.found.iter().take(20) {
        println!("seed {}: {}\n    {}", finding.seed, finding.words, replay(finding.seed, nodes.into(), mutant));
    }
    Ok(if batch.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command that prints the trace of a seed.
fn replay(seed: u64, nodes: usize, mutant: Option<Mutant>) -> String {
    let mutant = mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant:?}"));
    format!("./scripts/chaos simulate --nodes {nodes} --seed {seed}{mutant} --trace")
}

fn report(batch: &Batch, seconds: f64) {
    let Batch { seeds, grants, excused, covered, found } = batch;
    println!(
        "{seeds} seeds, {grants} grants in {seconds:.1} s; {} seeds broke a promise; {excused} violations were excused\n{covered:#?}",
        found.len(),
    );
}

fn one(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let scenario = Scenario::of(arguments.seed, arguments.nodes.into())?.without(arguments.mutant);
    println!("{scenario:?}");
    let run = simulate(&scenario, if arguments.trace { Trace::On } else { Trace::Off })?;
    for line in &run.trace {
        println!("{line}");
    }
    if let Some(path) = &arguments.history {
        run.history.write(BufWriter::new(File::create(path)?))?;
    }
    let results = check(&run.history);
    print!("{results}");
    for violation in &results.broken {
        for number in &violation.lines {
            println!("line {number}: {}", serde_json::to_string(&run.history.lines[number - 1])?);
        }
    }
    Ok(if results.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
