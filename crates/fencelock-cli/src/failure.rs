use crate::exit::Exit;
use crate::text::plain;
use fencelock::Error;
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

    /// The answer of an operating system that refused something that always works.
    pub(crate) fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::new(Exit::System, format!("cannot {what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, advice) = match &error {
            Error::Busy { .. } => (Exit::Busy, "; wait longer with -w, or ask it to finish"),
            Error::Lost { .. } => (Exit::Lost, ""),
            Error::Config(_) => (Exit::Usage, ""),
            Error::NotReplicated { .. } => (
                Exit::Unreachable,
                "; `fencelock doctor` counts the replicas, acks= in the URL says how many must confirm",
            ),
            Error::Unreachable { .. } => (Exit::Unreachable, "; `fencelock doctor` looks closer"),
            _ => (Exit::System, ""),
        };
        Self::new(exit, format!("{error:#}{advice}"))
    }
}
