//! Arguments of every command that waits for a lock.

use crate::span;
use clap::Args;
use std::time::Duration;

/// Whether to skip the check for locks that this program itself runs under.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Nested {
    /// Allow waiting for a lock that this program was started under.
    ///
    /// A command of `fencelock run KEY` that waits for the same KEY would deadlock, so fencelock refuses to wait. Use this
    /// option if that lock is already released.
    #[arg(long, help_heading = "Waiting")]
    pub(crate) nested_ok: bool,
}

/// How long to wait for other holders, and for servers that do not answer.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct Patience {
    /// Do not wait.
    #[arg(short, long, aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this long: 5, 0.5, 90s, 2m, 1h30m [default: no limit]
    ///
    /// Without it, the wait ends when the backend has not answered for the TTL.
    #[arg(short, long, alias = "timeout", value_name = "DURATION", value_parser = span::parse)]
    pub(crate) wait: Option<Duration>,
}

impl Patience {
    /// `None` if there is no limit.
    pub(crate) fn limit(self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }
}
