//! What the program does as one of a crew.

use crate::crew::VARIABLE;
use crate::job::Job;
use crate::{Failure, handoff, hot_key};
use std::process::ExitCode;

/// In a worker, does its job; `None` in the main process.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let job = std::env::var(VARIABLE).ok()?;
    Some(match work(&job) {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("worker: {error:#}");
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
