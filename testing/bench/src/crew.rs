//! The same program again, as other processes.

use crate::Failure;
use crate::job::Job;
use serde::de::DeserializeOwned;
use std::process::{Command, Stdio};

/// What a worker is told, through its environment.
pub(crate) const VARIABLE: &str = "FENCELOCK_BENCH_WORKER";

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
