//! Other processes of this program.

use crate::Failure;
use crate::job::BenchJob;
use fencelock_load::workers::{WorkerPool, start};
use serde::de::DeserializeOwned;
use std::process::Command;

/// The environment variable of a worker.
pub(crate) const VARIABLE: &str = "FENCELOCK_BENCH_WORKER";

/// Runs `count` workers concurrently, and collects their output.
pub(crate) fn run<T: DeserializeOwned>(job: &BenchJob, count: usize) -> Result<Vec<T>, Failure> {
    let (pool, job) = (WorkerPool::default(), serde_json::to_string(job)?);
    let mut workers = Vec::new();
    for _ in 0..count {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(VARIABLE, "1");
        let mut worker = pool.spawn(command)?;
        worker.send(&job)?;
        workers.push(worker);
    }
    start(&mut workers)?;
    let mut results = Vec::new();
    for worker in &mut workers {
        let result = worker.receive()?.ok_or("a worker exited early")?;
        results.push(serde_json::from_str(&result)?);
    }
    Ok(results)
}
