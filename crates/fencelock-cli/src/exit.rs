use rustix::process::Signal;
use std::process::ExitCode;

/// How the program ends. Every way has one number, and this file is the only one that knows numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Success,
    /// The command ended by itself with this code.
    Child(u8),
    /// The command, or the wait for its turn, was ended by a signal.
    Signalled(i32),
    /// Somebody else has the key.
    Busy,
    /// Somebody else has the key, and the caller chose the number for that.
    BusyAs(u8),
    /// The lock was lost, or about to be, or held for too long.
    Lost,
    /// It could not be told who has the key, or too few replicas confirmed it.
    Unreachable,
    /// Something that was given cannot be used.
    Usage,
    /// The answer could not be written.
    Output,
    /// The operating system refused something that always works.
    System,
    /// The command cannot be executed.
    NotExecutable,
    /// There is no such command.
    NotFound,
}

impl Exit {
    /// The number; as in `sysexits.h`, `env` and the shell.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Child(code) | Self::BusyAs(code) => code,
            Self::Signalled(signal) => 128u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
            Self::Usage => 64,
            Self::Unreachable => 69,
            Self::System => 71,
            Self::Output => 74,
            Self::Busy => 75,
            Self::Lost => 76,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl Exit {
    /// One word for programs, in the `kind` of an error.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Child(_) => "command",
            Self::Signalled(_) => "signal",
            Self::Busy | Self::BusyAs(_) => "busy",
            Self::Lost => "lost",
            Self::Unreachable => "unreachable",
            Self::Usage => "usage",
            Self::Output => "output",
            Self::System => "system",
            Self::NotExecutable => "not_executable",
            Self::NotFound => "not_found",
        }
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
  the command's own, or
  64     usage: an argument cannot be used
  69     unreachable: it could not be told whether the lock is free, or too few
         replicas confirmed it
  71     the operating system refused to help
  75     busy: somebody else has the lock (-n, -w; another number with -E)
  76     the lock was lost or --max-hold was over, and the command was ended; or
         something of it could not be ended, see stderr
  126    the command cannot be executed
  127    there is no such command
  128+N  the command, or the wait for the lock, was ended by signal N";

/// The table of the commands that start nothing.
pub(crate) const OTHERS: &str = "\
Exit status:
  0      done; of `status` and `wait`: the lock is free
  64     usage: an argument cannot be used, or `break` needs another option
  69     unreachable: it could not be told
  74     the answer could not be written
  75     busy: somebody else has the lock
  76     the lock is lost: it was not held any more
  128+N  ended by signal N";

/// The table of `fencelock doctor --help`.
pub(crate) const DOCTOR: &str = "\
Exit status:
  0      nothing failed; warnings and notes are no failures
  64     usage: an argument cannot be used
  69     something failed: locks cannot be taken there, or not be relied upon
  74     the answer could not be written
  128+N  ended by signal N";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_ours_is_in_a_table() {
        for exit in [
            Exit::Usage,
            Exit::Unreachable,
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
    fn a_death_by_signal_is_the_shells_number() {
        assert_eq!(Exit::from(Signal::KILL).code(), 137);
        assert_eq!(Exit::from(Signal::TERM).code(), 143);
        assert_eq!(Exit::Signalled(64).code(), 192, "the last real-time signal");
    }
}
