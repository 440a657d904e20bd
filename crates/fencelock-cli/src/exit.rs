use crate::text::plain;
use fencelock::{Error, Expiry, Occupant};
use rustix::process::Signal;
use std::process::ExitCode;
use std::{fmt, io};

/// The exit status of the program. This file is the only one that contains exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Success,
    /// The command exited with this code.
    Child(u8),
    /// A signal terminated the command, or the wait for the lock.
    Signalled(i32),
    /// INT or QUIT ended the command, which had the terminal, and was not sent by this program: somebody typed ^C or ^\\.
    Interrupted(Signal),
    /// Another client holds the key.
    Busy,
    /// Another client holds the key, and the caller chose the exit code.
    BusyAs(u8),
    /// The lock was lost, was about to be lost, or reached the maximum hold time.
    Lost,
    /// The holder of the key is unknown, or too few replicas confirmed the lock.
    Unreachable,
    /// An argument is invalid.
    Usage,
    /// The output could not be written.
    Output,
    /// A library has panicked.
    Internal,
    /// A system call failed unexpectedly.
    System,
    /// The command cannot be executed.
    NotExecutable,
    /// The command was not found.
    NotFound,
}

impl Exit {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        self.code_and_kind().0
    }

    /// The `kind` of an error in JSON.
    pub(crate) fn kind(self) -> &'static str {
        self.code_and_kind().1
    }

    /// The codes are as in `sysexits.h`, `env` and the shell.
    fn code_and_kind(self) -> (u8, &'static str) {
        match self {
            Self::Success => (0, "success"),
            Self::Child(code) => (code, "command"),
            Self::Signalled(signal) => (128u8.saturating_add(u8::try_from(signal).unwrap_or(127)), "signal"),
            Self::Interrupted(signal) => Self::from(signal).code_and_kind(),
            Self::Usage => (64, "usage"),
            Self::Unreachable => (69, "unreachable"),
            Self::Internal => (70, "internal"),
            Self::System => (71, "system"),
            Self::Output => (74, "output"),
            Self::Busy => (75, "busy"),
            Self::BusyAs(code) => (code, "busy"),
            Self::Lost => (76, "lost"),
            Self::NotExecutable => (126, "not_executable"),
            Self::NotFound => (127, "not_found"),
        }
    }

    /// The status that another process of this program reports.
    pub(crate) fn of_code(code: u8) -> Self {
        let known = [Self::Busy, Self::Lost, Self::Unreachable, Self::Usage, Self::Output, Self::System];
        known.into_iter().find(|exit| exit.code() == code).unwrap_or(Self::Child(code))
    }
}

impl From<Signal> for Exit {
    fn from(signal: Signal) -> Self {
        Self::Signalled(signal.as_raw())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The table at the end of `fencelock run --help`.
pub(crate) const RUN: &str = "\
Exit status:
  the exit status of the command, or
  64     usage: an argument cannot be used
  69     unreachable: the state of the lock is unknown, or too few replicas
         confirmed it
  70     a bug, which stderr names
  71     a system call failed
  75     busy: another client holds the lock (-n, -w; -E sets another code)
  76     the lock was lost or --max-hold was reached, and the command was
         terminated; or a process could not be killed, see stderr
  126    the command cannot be executed
  127    the command was not found
  128+N  signal N terminated the command or the wait for the lock";

/// The table of `fencelock elect --help`.
pub(crate) const ELECT: &str = "\
Exit status:
  the exit status of the command, or
  0      --observe: the reader of the output is gone
  64     usage: an argument cannot be used
  69     unreachable: the state of the lock is unknown, or too few replicas
         confirmed the leadership
  70     a bug, which stderr names
  71     a system call failed
  74     the output could not be written
  75     busy: another candidate leads (-n, -w)
  76     the command exited by itself, but its leadership had been lost before
  126    the command cannot be executed
  127    the command was not found
  128+N  signal N terminated the command, the campaign or --observe";

/// The table of all other commands.
pub(crate) const OTHERS: &str = "\
Exit status:
  0      success; for `status` and `wait`: the lock is free
  64     usage: an argument cannot be used, `break` needs another option, or
         only another user can release the lock
  69     unreachable: the state of the lock is unknown
  70     a bug, which stderr names
  71     a system call failed
  74     the output could not be written
  75     busy: another client holds the lock
  76     lost: the caller no longer held the lock
  128+N  terminated by signal N";

/// The table of `fencelock doctor --help`.
pub(crate) const DOCTOR: &str = "\
Exit status:
  0      no check failed; warnings and notes are not failures
  64     usage: an argument cannot be used
  69     a check failed: locks cannot be acquired, or are not reliable
  74     the output could not be written
  128+N  terminated by signal N";

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
            "; this is no lock of fencelock and does not expire: use another key, or end or move what is there"
        }
        (Occupant::Foreign(_), Expiry::Never) => {
            "; it does not expire: if it is an abandoned lock, see `fencelock break`"
        }
        _ => "; use -w to wait longer",
    }
}

pub(crate) fn exit_and_advice(error: &Error) -> (Exit, &'static str) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented_in_a_table() {
        for exit in [
            Exit::Usage,
            Exit::Unreachable,
            Exit::Internal,
            Exit::System,
            Exit::Output,
            Exit::Busy,
            Exit::Lost,
            Exit::NotExecutable,
            Exit::NotFound,
        ] {
            let row = format!("\n  {:<7}", exit.code());
            assert!(RUN.contains(&row) || OTHERS.contains(&row), "{exit:?}");
        }
    }

    #[test]
    fn termination_by_a_signal_has_the_code_of_the_shell() {
        assert_eq!(Exit::from(Signal::KILL).code(), 137);
        assert_eq!(Exit::from(Signal::TERM).code(), 143);
        assert_eq!(Exit::Signalled(64).code(), 192, "the last real-time signal");
    }
}
