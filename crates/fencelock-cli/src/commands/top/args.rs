use crate::{exit, values};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Show all held locks, or those that begin with PREFIX, on a screen that is kept current.
///
/// Keys: up and down, page up and down, home and end select a lock; enter shows its holders and waiters; s and r change the order; / filters by key and
/// holder; b breaks the selected lock after a confirmation; ^Z stops; q quits. An exclamation mark in front of the time left: the holder has not
/// renewed its lease in time. On Redis that shows after two renewals.
///
/// Nothing is written unless you break a lock. It lists at most once per --interval, at most 1000 locks per second, and for at most
/// a twentieth of the time, or a fifth while the server does not answer; with the details of a lock open, it also inspects that lock
/// once a second.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Top {
    /// Show only keys that begin with this.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Write the table once, also where there is no terminal, or with --json as one document.
    #[arg(long)]
    pub(crate) once: bool,
    /// The order of the locks.
    #[arg(long, value_enum, default_value_t = By::Waiting, value_name = "COLUMN")]
    pub(crate) sort: By,
    /// Reverse the order.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// The shortest time between two lists.
    #[arg(long, value_name = "DURATION", value_parser = parse_interval, default_value = "2s")]
    pub(crate) interval: Duration,
}

/// A column that orders the locks. Locks with the same value follow by key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Most waiters first.
    #[default]
    Waiting,
    /// Longest wait first.
    Waited,
    /// Longest held first.
    Held,
    /// What ends first.
    Ends,
    /// By name.
    Key,
    /// By holder.
    Holder,
}

/// A screen that changes more often cannot be read.
const SHORTEST: Duration = Duration::from_secs(1);

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = values::span(text)?;
    if interval < SHORTEST {
        return Err("the shortest interval is 1s".to_owned());
    }
    Ok(interval)
}
