//! Other processes of this program.

use crate::job::BenchJob;
use crate::{Failure, handoff, hot_key};
use fencelock_lab::workers::{Harness, OnEof, WorkerPool, start};
use serde::de::DeserializeOwned;
use std::process::{Command, ExitCode};

/// The environment variable of a worker.
const VARIABLE: &str = "FENCELOCK_BENCH_WORKER";

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

/// Runs the job of a worker; `None` in the main process.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn work() -> Result<(), Failure> {
    let harness = Harness::attach(OnEof::Kill)?;
    let job = serde_json::from_str(&harness.receive().unwrap_or_default())?;
    harness.ready()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(async {
        Ok::<_, Failure>(match job {
            BenchJob::HandOff(job) => serde_json::to_string(&handoff::work(&job).await?)?,
            BenchJob::HotKey(job) => serde_json::to_string(&hot_key::work(&job).await?)?,
        })
    })?;
    Ok(harness.send(&result)?)
}
