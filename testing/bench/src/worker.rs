//! This program as a worker process.

use crate::job::BenchJob;
use crate::workers::VARIABLE;
use crate::{Failure, handoff, hot_key};
use fencelock_load::workers::{Harness, OnEof};
use std::process::ExitCode;

/// Runs the job of a worker; `None` in the main process.
pub(crate) fn run_as_worker() -> Option<ExitCode> {
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
