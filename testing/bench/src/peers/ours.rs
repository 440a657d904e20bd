//! fencelock as a runner: this program again.

use std::process::ExitCode;

/// Set in the environment of a worker.
pub(crate) const VARIABLE: &str = "FENCELOCK_PEERS_WORKER";

/// In a worker, does its job; `None` in the main process.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    Some(match fencelock_lab::load::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencelock: {error:#}");
            ExitCode::FAILURE
        }
    })
}
