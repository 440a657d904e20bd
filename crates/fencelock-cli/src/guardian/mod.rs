//! A second process, between this one and the command, for the case that this one is killed or stopped.
//!
//! The kernel kills the command with its parent, but not what the command has started, and no handler can help against
//! KILL. So the command is started by a guardian: this program again, as a child subreaper. Whatever the command starts
//! stays below it, also in another session or process group, and after its own parent has ended. The end of their socket
//! tells the guardian of the wrapper's death, however that came, and a time on the clock of the lease that the wrapper
//! is late.
//!
//! The wrapper is a subreaper too: if the guardian is killed, what it had below it comes to the wrapper.

#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod socket;
mod word;

#[cfg(target_os = "linux")]
pub(crate) use process::guard;
#[cfg(target_os = "linux")]
use socket::Inbox;
#[cfg(target_os = "linux")]
use word::Word;
pub(crate) use word::{Deadlines, News};

#[cfg(not(target_os = "linux"))]
use crate::exit::Exit;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;

/// The first argument of such a process. It is nobody else's business, so no help mentions it, and only a process that its own
/// parent has given a socket obeys it.
const ROLE: &str = "--guard-command";
/// The second, if the command is to have the terminal from the start.
const FRONT: &str = "front";
const BACK: &str = "back";

/// What a guardian is told by its arguments.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) front: bool,
    pub(crate) command: Vec<OsString>,
}

/// Whether this process was started as a guardian; if so, for what.
pub(crate) fn role() -> Option<Role> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    Some(Role { front: arguments.next()? == FRONT, command: arguments.collect() })
}

/// Why there is no guarded command.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// There can be no guardian here, as without `/proc`. Nothing was started.
    NoGuardian,
    /// The command cannot be started.
    Command(io::Error),
}

/// The wrapper's side of a guardian.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Guardian {
    process: std::process::Child,
    socket: tokio::net::UnixStream,
    inbox: Inbox<5>,
    told: Deadlines,
}

#[cfg(target_os = "linux")]
impl Guardian {
    /// Starts `command` below a guardian. `front` gives it the terminal.
    pub(crate) async fn start(
        command: &[OsString],
        environment: &[crate::child::Variable],
        front: bool,
    ) -> Result<(Self, Pid), NotStarted> {
        let mut guardian = Self::spawn(command, environment, front).map_err(|_| NotStarted::NoGuardian)?;
        socket::send_stdin(&guardian.socket).map_err(NotStarted::Command)?;
        match guardian.news().await {
            Some(News::Started(pid)) => Ok((guardian, pid)),
            Some(News::Failed(error)) => Err(NotStarted::Command(io::Error::from_raw_os_error(error))),
            _ => Err(NotStarted::Command(io::Error::other("the process that guards it has ended"))),
        }
    }

    fn spawn(command: &[OsString], environment: &[crate::child::Variable], front: bool) -> io::Result<Self> {
        use std::os::{fd::OwnedFd, unix::process::CommandExt};
        crate::descendants::adopt_orphans(true)?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let socket = tokio::net::UnixStream::from_std(ours)?;
        let mut guardian = std::process::Command::new("/proc/self/exe");
        guardian.arg0("fencelock").args([ROLE, if front { FRONT } else { BACK }]).args(command);
        crate::child::set_environment(&mut guardian, environment);
        // A group of its own, so that nothing typed at a terminal ends or stops it. Its stdin is the socket; that of the
        // command comes over the socket.
        let process = guardian.process_group(0).stdin(OwnedFd::from(theirs)).spawn()?;
        Ok(Self { process, socket, inbox: Inbox::new(), told: Deadlines::NEVER })
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// The next thing that it has to say; `None` after its death. Cancel safe.
    pub(crate) async fn news(&mut self) -> Option<News> {
        loop {
            self.socket.readable().await.ok()?;
            match self.socket.try_read(self.inbox.room()) {
                Ok(0) => return None,
                Ok(bytes) => {
                    if let Some(message) = self.inbox.took(bytes) {
                        return News::decode(message);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Until when it is to wait for the wrapper, if that has changed.
    pub(crate) fn tell(&mut self, deadlines: Deadlines) {
        // It fails if the guardian is dead, which its socket tells, or was stopped for so long that the socket is full.
        if !deadlines.is_about(self.told) && socket::send(&self.socket, &Word::Wait(deadlines).encode()).is_ok() {
            self.told = deadlines;
        }
    }

    /// The command has ended: what it left behind is its own affair.
    pub(crate) fn dismiss(mut self) {
        let _ = crate::descendants::adopt_orphans(false);
        let _ = socket::send(&self.socket, &Word::Dismissed.encode());
        let _ = self.process.wait();
    }

    /// It is dead, or must be. What was below it comes to this process.
    pub(crate) fn bury(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Elsewhere nothing keeps orphans together, so there is none.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) enum Guardian {}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unused_async, reason = "it is the same as elsewhere")]
impl Guardian {
    pub(crate) async fn start(
        _: &[OsString],
        _: &[crate::child::Variable],
        _: bool,
    ) -> Result<(Self, Pid), NotStarted> {
        Err(NotStarted::NoGuardian)
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        match *self {}
    }

    pub(crate) async fn news(&mut self) -> Option<News> {
        match *self {}
    }

    pub(crate) fn tell(&mut self, _: Deadlines) {
        match *self {}
    }

    pub(crate) fn dismiss(self) {
        match self {}
    }

    pub(crate) fn bury(self) {
        match self {}
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn guard(_: &Role) -> Exit {
    Exit::Usage
}
