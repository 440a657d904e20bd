use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

/// A state change of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// It exited with this code.
    Exited(u8),
    /// A signal terminated it.
    Killed(i32),
    /// A signal stopped it.
    Stopped(i32),
}

impl Change {
    /// Converts the wait status of a child.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        // The kernel keeps eight bits of a code.
        let exited = |code: i32| Self::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX));
        let ended = status.exit_status().map(exited).or_else(|| status.terminating_signal().map(Self::Killed));
        ended.or_else(|| status.stopping_signal().map(Self::Stopped))
    }
}
