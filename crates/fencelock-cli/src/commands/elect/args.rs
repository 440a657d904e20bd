#![allow(clippy::doc_markdown, reason = "this is help text")]

use crate::values::Patience;
use crate::{exit, settings, values};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Run a command while this process leads an election, or show who leads.
///
/// Many processes campaign under one NAME, one of them leads and runs its command, and the others wait in a queue. The
/// election is the lock of the same name: `status NAME` shows the leader, `break NAME` ends its term, and `run NAME`
/// waits for it. The term of a leader is its fencing token.
///
/// If the leadership is lost, the command is terminated before another process can lead, as with `run`, and this process
/// campaigns again. If the command exits by itself, the leader resigns, the next candidate leads at once, and this program
/// exits with the exit status of the command. Signals are handled as with `run`: TERM ends the command, and then this
/// program.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::ELECT)]
#[command(override_usage = "fencelock elect [OPTIONS] NAME -- COMMAND [ARGUMENT]...
       fencelock elect --observe NAME")]
pub(crate) struct Elect {
    /// Name of the election.
    #[arg(value_parser = values::key)]
    pub(crate) name: String,
    /// The command and its arguments. They are never parsed as options of fencelock.
    ///
    /// The environment of the command contains the name in FENCELOCK_KEY, the term in FENCELOCK_FENCE, the backend in
    /// FENCELOCK_BACKEND and the holder ID in FENCELOCK_HOLDER, as with `run`.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    /// Text that the leader publishes, such as its address: at most 128 bytes.
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
    /// Print the leader and each change as one line; do not campaign.
    #[arg(long, conflicts_with_all = ["command", "value", "no_wait", "wait", "nested_ok", "pass_url", "metrics_file", "grace"])]
    pub(crate) observe: bool,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Pass FENCELOCK_PASSWORD, and a FENCELOCK_URL that contains a password, to the command [default: both are removed].
    #[arg(long, help_heading = None)]
    pub(crate) pass_url: bool,
    /// Write when the command started and ended last, how, and how long it waited, into a file in DIR for the textfile collector of
    /// node_exporter: one for each KEY.
    ///
    /// What cannot be written is a warning, and does not change the exit status.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = None)]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Time to live of a term, renewed after each third; the term of a crashed leader ends after this time.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = settings::TTL, help_heading = "Leading")]
    pub(crate) ttl: Duration,
    /// Grace period between TERM and KILL, before the lease ends [default: a sixth of the TTL, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = values::span, help_heading = "Leading")]
    pub(crate) grace: Option<Duration>,
}
