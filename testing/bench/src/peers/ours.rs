//! This program as the runner of fencelock.

use std::process::ExitCode;

/// The environment variable of a worker.
pub(crate) const VARIABLE: &str = "FENCELOCK_PEERS_WORKER";

/// Runs the job of a worker; `None` in the main process.
pub(crate) fn run_as_worker() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    Some(match fencelock_load::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencelock: {error:#}");
            ExitCode::FAILURE
        }
    })
}
