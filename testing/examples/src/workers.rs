//! Processes of this very program that begin at the same time.

use crate::Failure;
use fencelock_lab::workers::{Harness, OnEof, Worker, WorkerPool, start};
use std::process::Command;
use std::time::Duration;

/// A buyer may have to wait for all others.
const PATIENCE: Duration = Duration::from_secs(600);

/// Starts this program with other arguments.
///
/// # Errors
/// Those of the operating system.
pub fn spawn(arguments: &[String]) -> Result<Worker, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(WorkerPool::default().spawn(command)?)
}

/// Starts a worker for each list of arguments, lets them begin together, and waits for all.
///
/// # Errors
/// If one of them cannot begin or fails; the others are killed then.
pub fn run_together(jobs: &[Vec<String>]) -> Result<(), Failure> {
    let mut workers = jobs.iter().map(|job| spawn(job)).collect::<Result<Vec<_>, _>>()?;
    start(&mut workers)?;
    workers.into_iter().try_for_each(finish)
}

/// Waits for the end of a worker.
///
/// # Errors
/// If it failed.
pub fn finish(worker: Worker) -> Result<(), Failure> {
    Ok(worker.finish(PATIENCE)?)
}

/// In a worker: says that it is ready, and waits until all may begin. The worker ends with what this returns.
///
/// # Errors
/// If the process that started it is gone.
pub fn await_start() -> Result<Harness, Failure> {
    let harness = Harness::attach(OnEof::Kill)?;
    harness.ready()?;
    Ok(harness)
}
