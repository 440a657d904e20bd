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

mod message;
#[cfg(target_os = "linux")]
mod process;

#[cfg(target_os = "linux")]
use crate::child_socket::{self, MessageBuffer};
#[cfg(target_os = "linux")]
use message::WrapperMessage;
pub(crate) use message::{Deadlines, WatcherMessage};
#[cfg(target_os = "linux")]
pub(crate) use process::run;

#[cfg(not(target_os = "linux"))]
use crate::exit::Exit;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

/// The first argument of the watcher. It is internal, so no help mentions it. Only a process that has received a socket from its
/// own parent accepts it.
const ROLE: &str = "--guard-command";
/// The second argument, if the command starts in the foreground of the terminal.
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "back";

/// The arguments of the watcher. The command is not among them: a signal to all processes whose arguments name the command, as
/// `pkill -f` sends it, does not reach the watcher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatcherArgs {
    pub(crate) foreground: bool,
}

/// The arguments of the watcher if this process was started as one.
pub(crate) fn role() -> Option<WatcherArgs> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    Some(WatcherArgs { foreground: arguments.next()? == FOREGROUND })
}

/// Why the command was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// A watcher is not possible here, for example without `/proc`. Nothing was started.
    NoWatcher,
    /// The command cannot be started.
    Command(io::Error),
}

/// The wrapper side of the watcher.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct ParentDeathWatcher {
    process: std::process::Child,
    socket: tokio::net::UnixStream,
    buffer: MessageBuffer<5>,
    sent: Deadlines,
}

#[cfg(target_os = "linux")]
impl ParentDeathWatcher {
    /// Starts `command` below a watcher, which keeps the `locks` open until it is dismissed. `foreground` gives the command the
    /// terminal.
    pub(crate) async fn start(
        command: &[OsString],
        environment: &[crate::child::Variable],
        foreground: bool,
        locks: &[OwnedFd],
    ) -> Result<(Self, Pid), NotStarted> {
        let mut watcher = Self::spawn(environment, foreground).map_err(|_| NotStarted::NoWatcher)?;
        watcher.send_job(command, locks).await.map_err(NotStarted::Command)?;
        match watcher.next_message().await {
            Some(WatcherMessage::Started(pid)) => Ok((watcher, pid)),
            Some(WatcherMessage::Failed(error)) => Err(NotStarted::Command(io::Error::from_raw_os_error(error))),
            _ => Err(NotStarted::Command(io::Error::other("the parent-death watcher has exited"))),
        }
    }

    fn spawn(environment: &[crate::child::Variable], foreground: bool) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        crate::descendants::adopt_orphans(true)?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let socket = tokio::net::UnixStream::from_std(ours)?;
        let mut watcher = std::process::Command::new("/proc/self/exe");
        watcher.arg0("fencelock").args([ROLE, if foreground { FOREGROUND } else { BACKGROUND }]);
        crate::child::set_environment(&mut watcher, environment);
        // In its own process group, so that terminal signals do not reach it. Its stdin is the socket; the stdin of the
        // command is sent over the socket.
        let process = watcher.process_group(0).stdin(OwnedFd::from(theirs)).spawn()?;
        Ok(Self { process, socket, buffer: MessageBuffer::new(), sent: Deadlines::NEVER })
    }

    /// Sends what the watcher needs to start the command: the descriptors and the arguments, which may be longer than the buffer of
    /// the socket.
    async fn send_job(&self, command: &[OsString], locks: &[OwnedFd]) -> io::Result<()> {
        let job = child_socket::encode_command(command);
        child_socket::send_descriptors(&self.socket, job.len(), locks)?;
        let mut rest = &job[..];
        while !rest.is_empty() {
            let sent =
                self.socket.async_io(tokio::io::Interest::WRITABLE, || child_socket::send(&self.socket, rest)).await?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Receives the next message; `None` after the watcher has died. Cancel safe.
    pub(crate) async fn next_message(&mut self) -> Option<WatcherMessage> {
        loop {
            self.socket.readable().await.ok()?;
            match self.socket.try_read(self.buffer.free()) {
                Ok(0) => return None,
                Ok(bytes) => {
                    if let Some(message) = self.buffer.advance(bytes) {
                        return WatcherMessage::decode(message);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends the deadlines if they have changed.
    pub(crate) fn send_deadlines(&mut self, deadlines: Deadlines) {
        // It fails if the watcher is dead, which the socket reports, or was stopped for so long that the socket is full.
        if !deadlines.is_close_to(self.sent)
            && child_socket::send(&self.socket, &WrapperMessage::Wait(deadlines).encode()).is_ok()
        {
            self.sent = deadlines;
        }
    }

    /// Ends the watcher after the command has exited. Descendants keep running.
    pub(crate) fn dismiss(mut self) {
        let _ = crate::descendants::adopt_orphans(false);
        let _ = child_socket::send(&self.socket, &WrapperMessage::Exit.encode());
        let _ = self.process.wait();
    }

    /// Kills the watcher. This process inherits its descendants.
    pub(crate) fn kill(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Other systems have no subreaper, so there is no watcher.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) enum ParentDeathWatcher {}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unused_async, reason = "same signature as on Linux")]
impl ParentDeathWatcher {
    pub(crate) async fn start(
        _: &[OsString],
        _: &[crate::child::Variable],
        _: bool,
        _: &[OwnedFd],
    ) -> Result<(Self, Pid), NotStarted> {
        Err(NotStarted::NoWatcher)
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        match *self {}
    }

    pub(crate) async fn next_message(&mut self) -> Option<WatcherMessage> {
        match *self {}
    }

    pub(crate) fn send_deadlines(&mut self, _: Deadlines) {
        match *self {}
    }

    pub(crate) fn dismiss(self) {
        match self {}
    }

    pub(crate) fn kill(self) {
        match self {}
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_: WatcherArgs) -> Exit {
    Exit::Usage
}
