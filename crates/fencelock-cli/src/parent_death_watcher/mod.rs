//! A watcher process between `fencelock run` (the wrapper) and the command, in case the wrapper is killed or stopped.
//!
//! The parent-death signal kills the command with its parent, but not the descendants of the command, and no handler can catch
//! KILL. So a watcher process starts the command: this program again, as a child subreaper. All descendants stay below it, also
//! in another session or process group, and after their own parent has exited. The watcher detects the death of the wrapper by
//! EOF on their socket, and a late wrapper by a deadline on the clock of the lease.
//!
//! On files the watcher has copies of the descriptors that hold the locks. After the death of the wrapper, the kernel keeps the
//! locks until the watcher exits, and that is after the last descendant of the command has ended.
//!
//! The wrapper is a subreaper too: if the watcher is killed, the wrapper inherits its descendants.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "without a subreaper there is no watcher"))]

#[cfg(target_os = "linux")]
mod process;

use crate::change::Change;
use crate::child_socket::{JsonLines, Variable, send, send_job, set_environment, start};
use crate::descendants::adopt_orphans;
#[cfg(target_os = "linux")]
pub(crate) use process::run;

use fencelock::Moment;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Duration;

/// The times at which the watcher acts if the wrapper does not, on the clock of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) term: Moment,
    pub(crate) kill: Moment,
}

/// A message of the watcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WatcherMessage {
    /// The command runs as this process.
    Started(i32),
    /// The command cannot be started; an error number of the system.
    Failed(i32),
    /// The state of the command has changed.
    Changed(Change),
    /// The wrapper was late, so the watcher sent this signal to all descendants.
    Late(i32),
}

/// A message of the wrapper: deadlines in microseconds, or that the watcher can exit.
type WrapperMessage = Option<(u64, u64)>;

/// Deadlines that differ by at most this are equal: they are recomputed each time.
const TOLERANCE: Duration = Duration::from_millis(1);

impl Deadlines {
    pub(crate) const NEVER: Self = Self { term: Moment::NEVER, kill: Moment::NEVER };

    fn is_close_to(self, other: Self) -> bool {
        let close = |one: Moment, two: Moment| one == two || one.since(two).max(two.since(one)) <= TOLERANCE;
        close(self.term, other.term) && close(self.kill, other.kill)
    }
}

/// The first argument of the watcher. It is internal, so no help mentions it. Only a process that has received a socket from its
/// own parent accepts it.
const ROLE: &str = "--guard-command";
/// The second argument, if the command starts in the foreground of the terminal.
const FOREGROUND: &str = "foreground";

/// Whether the command starts in the foreground, if this process was started as a watcher. The command is not among its arguments: a
/// signal to all processes whose arguments name the command, as `pkill -f` sends it, does not reach the watcher.
pub(crate) fn role() -> Option<bool> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == ROLE).then(|| arguments.next().is_some_and(|second| second == FOREGROUND))
}

/// Why the command was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// A watcher is not possible here, for example without `/proc`. Nothing was started.
    NoWatcher,
    /// The command cannot be started.
    Command(io::Error),
}

/// The wrapper side of the watcher. Other systems than Linux have no subreaper, so there is none.
#[derive(Debug)]
pub(crate) struct ParentDeathWatcher {
    process: Child,
    lines: JsonLines,
    sent: Deadlines,
}

impl ParentDeathWatcher {
    /// Starts `command` below a watcher, which keeps the `locks` open until it is dismissed. `foreground` gives the command the
    /// terminal.
    pub(crate) async fn start(
        command: &[OsString],
        environment: &[Variable],
        foreground: bool,
        locks: &[OwnedFd],
    ) -> Result<(Self, Pid), NotStarted> {
        let started = adopt_orphans(true).and_then(|()| {
            start(|watcher| {
                // In its own process group, so that terminal signals do not reach it.
                watcher.arg(ROLE).args(foreground.then_some(FOREGROUND)).process_group(0);
                set_environment(watcher, environment);
            })
        });
        let (process, socket) = started.map_err(|_| NotStarted::NoWatcher)?;
        let mut watcher = Self { process, lines: JsonLines::new(socket), sent: Deadlines::NEVER };
        send_job(watcher.lines.stream(), command, locks).await.map_err(NotStarted::Command)?;
        match watcher.next_message().await {
            Some(WatcherMessage::Started(pid)) => {
                let pid = Pid::from_raw(pid).ok_or_else(|| NotStarted::Command(io::ErrorKind::InvalidData.into()))?;
                Ok((watcher, pid))
            }
            Some(WatcherMessage::Failed(error)) => Err(NotStarted::Command(io::Error::from_raw_os_error(error))),
            _ => Err(NotStarted::Command(io::Error::other("the parent-death watcher has exited"))),
        }
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Receives the next message; `None` after the watcher has died. Cancel safe.
    pub(crate) async fn next_message(&mut self) -> Option<WatcherMessage> {
        self.lines.read().await.ok().flatten()
    }

    /// Sends the deadlines if they have changed.
    pub(crate) fn send_deadlines(&mut self, deadlines: Deadlines) {
        // It fails if the watcher is dead, which the socket reports, or was stopped for so long that the socket is full.
        let message: WrapperMessage = Some((deadlines.term.as_micros(), deadlines.kill.as_micros()));
        if !deadlines.is_close_to(self.sent) && send(self.lines.stream(), &message).is_ok() {
            self.sent = deadlines;
        }
    }

    /// Ends the watcher after the command has exited. Descendants keep running.
    pub(crate) fn dismiss(mut self) {
        let _ = adopt_orphans(false);
        let done: WrapperMessage = None;
        let _ = send(self.lines.stream(), &done);
        let _ = self.process.wait();
    }

    /// Kills the watcher. This process inherits its descendants.
    pub(crate) fn kill(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_: bool) -> crate::exit::Exit {
    crate::exit::Exit::Usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_equal_deadlines_are_not_sent_again() {
        let at = |ms: u64| Deadlines { term: Moment::from_micros(ms * 1000), kill: Moment::NEVER };
        assert!(at(5).is_close_to(at(6)) && at(6).is_close_to(at(5)));
        assert!(!at(5).is_close_to(at(7)) && !at(5).is_close_to(Deadlines::NEVER));
    }
}
