use crate::{exit, values};
use clap::Args;
use fencelock::contract::Window;
use fencelock::{Client, OncePerWindow};
use std::time::Duration;

/// Options of `run` for a command that succeeds at most once in each window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[command(next_help_heading = "Once per window")]
pub(crate) struct OncePer {
    #[command(flatten)]
    pub(crate) window: OnceWindow,
    /// Count starts instead of successes: the command starts at most once in each window.
    #[arg(long, requires = "window")]
    pub(crate) even_if_failed: bool,
}

/// The window of the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub(crate) struct OnceWindow {
    /// Run the command only if it has not succeeded yet in this window: 1h, 1d. If it has, exit with 0.
    ///
    /// Windows are aligned: one of 1h begins at the full hour, one of 1d at midnight UTC, on the clock of the backend. An exit
    /// status of 0 is a success. After a failure, a crash or a lost lock, the next caller runs the command. While another caller
    /// runs it, a caller waits (see -n, -w), and runs it only if that run fails. `fencelock once KEY` shows who has done the
    /// work.
    #[arg(long, value_name = "DURATION", value_parser = values::span, group = "window")]
    pub(crate) once_per: Option<Duration>,
    /// Let each window begin this much later: with `--once-per 1d --offset 90m`, at 01:30 UTC.
    ///
    /// Choose a moment at which nobody starts the command: callers on two sides of it are in two windows.
    #[arg(long, value_name = "DURATION", value_parser = values::span, requires = "once_per", conflicts_with = "min_interval")]
    pub(crate) offset: Option<Duration>,
    /// Run the command only if its last success began at least this long ago: 20h for a command that cron starts once a day.
    ///
    /// Like --once-per, without windows that begin at a fixed time.
    #[arg(long, value_name = "DURATION", value_parser = values::span, group = "window")]
    pub(crate) min_interval: Option<Duration>,
}

impl OnceWindow {
    /// Whether it is given. The error names the option.
    pub(crate) fn check(self) -> Result<bool, String> {
        if let Some(interval) = self.min_interval {
            return Window::since_last(interval).map(|_| true).map_err(|invalid| format!("--min-interval: {invalid}"));
        }
        let Some(every) = self.once_per else { return Ok(false) };
        let window = Window::new(every).map_err(|invalid| format!("--once-per: {invalid}"))?;
        let offset = self.offset.unwrap_or_default();
        window.with_offset(offset).map(|_| true).map_err(|invalid| format!("--offset: {invalid}"))
    }

    /// The option that it is given by.
    pub(crate) fn option(self) -> &'static str {
        if self.min_interval.is_some() { "--min-interval" } else { "--once-per" }
    }

    /// The work in this window, which is given.
    pub(crate) fn work(self, key: &str, client: &Client) -> OncePerWindow {
        match self.min_interval {
            Some(interval) => client.min_interval(key, interval),
            None => client.once(key, self.once_per.unwrap_or_default()).offset(self.offset.unwrap_or_default()),
        }
    }
}

/// Show whether the work of KEY is done in this window: by `run --once-per`, or by the library.
///
/// Without --once-per or --min-interval, until the end of the latest window that the callers have named. With --clear, the work may
/// run again in this window.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Once {
    /// Name of the lock.
    #[arg(value_parser = values::key)]
    pub(crate) key: String,
    /// Remove the record that the work is done. A run in progress is not affected.
    #[arg(long)]
    pub(crate) clear: bool,
    #[command(flatten)]
    pub(crate) window: OnceWindow,
}
