use crate::exit::Exit;
use crate::text::plain;
use fencelock::{Error, Expiry, Occupant};
use std::{fmt, io};

/// An error that ends the program: an exit status and a line for stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: plain(&message) }
    }

    /// Invalid arguments. Without `--json`, usage and hints are printed too.
    pub(crate) fn of_arguments(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default().trim_end();
        let lines: Vec<_> = first.strip_prefix("error: ").unwrap_or(first).lines().map(str::trim).collect();
        Self::new(Exit::Usage, lines.join(" "))
    }

    /// Why a process could not be started.
    pub(crate) fn why_not_started(error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::WouldBlock => format!("no more processes may be started, see `ulimit -u`: {error}"),
            _ => error.to_string(),
        }
    }

    /// An unexpected error of a system call.
    pub(crate) fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::new(Exit::System, format!("cannot {what}: {error}"))
    }
}

impl Failure {
    /// The error without advice, for `doctor`: the advice would be to run `doctor`.
    pub(crate) fn without_advice(error: &Error) -> Self {
        Self::new(exit_and_advice(error).0, format!("{error:#}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, advice) = exit_and_advice(&error);
        Self::new(exit, format!("{error:#}{advice}"))
    }
}

fn advice_on_busy(by: &Occupant, expires_in: Expiry) -> &'static str {
    match (by, expires_in) {
        (Occupant::Foreign(foreign), Expiry::Never) if !foreign.is_string() => {
            "; this is not a lock and does not expire: use another key, or move the value"
        }
        (Occupant::Foreign(_), Expiry::Never) => {
            "; it does not expire: if it is an abandoned lock, see `fencelock break`"
        }
        _ => "; use -w to wait longer",
    }
}

fn exit_and_advice(error: &Error) -> (Exit, &'static str) {
    match error {
        Error::Busy { holders, expires_in, .. } => (Exit::Busy, advice_on_busy(holders.first(), *expires_in)),
        Error::Lost { .. } => (Exit::Lost, ""),
        Error::ModeUnsupported { .. } | Error::ModeConflict { .. } | Error::Config(_) => (Exit::Usage, ""),
        Error::NotReplicated { .. } => (
            Exit::Unreachable,
            "; `fencelock doctor` shows the number of replicas, and acks= in the URL sets how many must confirm",
        ),
        Error::Unreachable { cause, .. } if cause.is_panic() => (Exit::Internal, "; please report it"),
        Error::Unreachable { .. } => (Exit::Unreachable, "; run `fencelock doctor` for details"),
        _ => (Exit::System, ""),
    }
}
