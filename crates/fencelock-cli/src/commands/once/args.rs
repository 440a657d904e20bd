use crate::{exit, span};
use clap::Args;
use std::time::Duration;

/// Options of `run` for a command that succeeds at most once in each window of time.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Once per window")]
pub(crate) struct OncePer {
    /// Run the command only if it has not succeeded yet in this window: 1h, 1d. If it has, exit with 0.
    ///
    /// Windows are aligned: one of 1h begins at the full hour, one of 1d at midnight UTC, on the clock of the backend. An exit
    /// status of 0 is a success. After a failure, a crash or a lost lock, the next caller runs the command. While another caller
    /// runs it, a caller waits (see -n, -w), and runs it only if that run fails. `fencelock once KEY` shows who has done the
    /// work.
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    pub(crate) once_per: Option<Duration>,
    /// Count starts instead of successes: the command starts at most once in each window.
    #[arg(long, requires = "once_per")]
    pub(crate) even_if_failed: bool,
}

/// Show whether the work of KEY is done in this window: by `run --once-per`, or by the library.
///
/// With --clear, the work may run again in this window.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Once {
    /// Name of the lock.
    pub(crate) key: String,
    /// Remove the record that the work is done. A run in progress is not affected.
    #[arg(long)]
    pub(crate) clear: bool,
}
