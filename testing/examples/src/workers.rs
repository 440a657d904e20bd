//! Processes of this program that start together.

use crate::Failure;
use fencelock_load::workers::{Harness, OnEof, Worker, WorkerPool, start};
use std::process::Command;
use std::time::Duration;

/// A buyer may have to wait for all others.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Starts this program with other arguments.
///
/// # Errors
/// Errors of the operating system.
pub fn spawn(arguments: &[String]) -> Result<Worker, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(WorkerPool::default().spawn(command)?)
}

/// Starts a worker for each list of arguments, lets them start together, and waits for all.
///
/// # Errors
/// If a worker cannot start or fails; the others are then killed.
pub fn run_together(jobs: &[Vec<String>]) -> Result<(), Failure> {
    let mut workers = jobs.iter().map(|job| spawn(job)).collect::<Result<Vec<_>, _>>()?;
    start(&mut workers)?;
    workers.into_iter().try_for_each(finish)
}

/// Waits for a worker to exit.
///
/// # Errors
/// If it failed.
pub fn finish(worker: Worker) -> Result<(), Failure> {
    Ok(worker.finish(TIMEOUT)?)
}

/// In a worker: reports that it is ready, and waits until all may start. The worker exits when the returned value ends.
///
/// # Errors
/// If the parent process has exited.
pub fn await_start() -> Result<Harness, Failure> {
    let harness = Harness::attach(OnEof::Kill)?;
    harness.ready()?;
    Ok(harness)
}
