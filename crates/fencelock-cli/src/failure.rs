use crate::exit::Exit;
use crate::text::plain;
use fencelock::{Error, Expiry, Occupant};
use std::fmt;

/// Why the program ends without having done what it was asked to: a number, and a line for stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: plain(&message) }
    }

    /// Arguments that cannot be read. Usage and hints are for people, who get them without `--json`.
    pub(crate) fn of_arguments(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let told = text.split("\n\n").next().unwrap_or_default().trim_end();
        let lines: Vec<_> = told.strip_prefix("error: ").unwrap_or(told).lines().map(str::trim).collect();
        Self::new(Exit::Usage, lines.join(" "))
    }

    /// The answer of an operating system that refused something that always works.
    pub(crate) fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::new(Exit::System, format!("cannot {what}: {error}"))
    }
}

impl Failure {
    /// The same without advice: that of `doctor` would be to ask `doctor`.
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
            "; this is no lock, and does not end: use another key, or move what is there"
        }
        (Occupant::Foreign(_), Expiry::Never) => {
            "; it does not end by itself: if it is a lock that nobody holds, `fencelock break` shows how to end it"
        }
        _ => "; wait longer with -w, or ask it to finish",
    }
}

fn exit_and_advice(error: &Error) -> (Exit, &'static str) {
    match error {
        Error::Busy { holders, expires_in, .. } => (Exit::Busy, advice_on_busy(holders.first(), *expires_in)),
        Error::Lost { .. } => (Exit::Lost, ""),
        Error::Config(_) => (Exit::Usage, ""),
        Error::NotReplicated { .. } => {
            (Exit::Unreachable, "; `fencelock doctor` counts the replicas, acks= in the URL says how many must confirm")
        }
        Error::Unreachable { .. } => (Exit::Unreachable, "; `fencelock doctor` looks closer"),
        _ => (Exit::System, ""),
    }
}
