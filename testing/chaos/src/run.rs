//! A complete run.

use crate::Failure;
use crate::checker::{CheckResults, check};
use crate::history::History;
use crate::phases::{Frame, Settings};
use crate::recorder::{self, Recorder};
use crate::{resource, topology};
use std::sync::Arc;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// All recorded events.
    pub history: History,
    /// The result of the checker.
    pub results: CheckResults,
}

/// Runs everything, and checks the history. No process is left.
///
/// # Errors
/// If the run failed: a server did not start, or a worker exited by itself. Violations are part of the
/// results.
pub fn run(settings: &Settings) -> Result<Run, Failure> {
    let dir = tempfile::Builder::new().prefix("fencelock-chaos-").tempdir()?;
    let histories = dir.path().join("histories");
    std::fs::create_dir(&histories)?;
    let recorder = Arc::new(Recorder::new(&histories.join("run.jsonl"))?);
    let resource = resource::serve()?;
    topology::perform(&Frame { settings, dir: dir.path(), resource, histories: &histories, recorder })?;
    let history = recorder::collect(&histories)?;
    let results = check(&history);
    Ok(Run { history, results })
}
