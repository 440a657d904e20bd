//! The same program again, as another process.

use crate::{Failure, handoff, hot_key};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::process::{Command, ExitCode, Stdio};

/// What a worker is told, through its environment.
const VARIABLE: &str = "FENCELOCK_BENCH_WORKER";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    HandOff(handoff::Job),
    HotKey(hot_key::Job),
}

/// Starts `count` workers at once and collects what they print.
pub(crate) fn crew<T: DeserializeOwned>(job: &Job, count: usize) -> Result<Vec<T>, Failure> {
    let job = serde_json::to_string(job)?;
    let program = std::env::current_exe()?;
    let workers: Vec<_> = (0..count)
        .map(|_| Command::new(&program).env(VARIABLE, &job).stdin(Stdio::null()).stdout(Stdio::piped()).spawn())
        .collect::<Result<_, _>>()?;
    let mut results = Vec::new();
    for worker in workers {
        let output = worker.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("a worker ended with {}", output.status).into());
        }
        results.push(serde_json::from_slice(&output.stdout)?);
    }
    Ok(results)
}

/// In a worker, does its job; `None` in the main process.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let job = std::env::var(VARIABLE).ok()?;
    Some(match work(&job) {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    })
}

fn work(job: &str) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        Ok(match serde_json::from_str(job)? {
            Job::HandOff(job) => serde_json::to_string(&handoff::work(&job).await?)?,
            Job::HotKey(job) => serde_json::to_string(&hot_key::work(&job).await?)?,
        })
    })
}
