//! The process at the other end of a session.

use crate::keeper::{End, descriptor_of};
use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use std::future::pending;
use std::os::fd::OwnedFd;
use tokio::net::UnixStream;

#[derive(Debug)]
pub(crate) struct Peer {
    /// Its number here; `None` for a process of another container.
    pub(super) pid: Option<i32>,
    /// `None` if the system cannot watch it: its session ends with its connection alone.
    pub(super) end: Option<End>,
}

impl Peer {
    /// Its end, where the system tells. Cancel safe.
    pub(crate) async fn ended(&self) {
        match &self.end {
            Some(end) => end.wait().await,
            None => pending().await,
        }
    }

    /// The process that has connected; `None` if it has ended.
    pub(super) fn of_socket(stream: &UnixStream) -> Option<Self> {
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|pid| *pid > 0);
        #[cfg(target_os = "linux")]
        match nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerPidfd) {
            Ok(descriptor) => return Some(Self::watched(pid, descriptor)),
            Err(nix::errno::Errno::ESRCH) => return None,
            // Linux before 6.5. Another process may have got its number; then the session ends with its connection, or too early.
            Err(_) => {}
        }
        Self::numbered(pid)
    }

    /// The process that has started this one; `None` if it has ended.
    pub(super) fn parent() -> Option<Self> {
        let parent = || getppid().map(Pid::as_raw_pid);
        let pid = parent();
        Self::numbered(pid).filter(|_| parent() == pid)
    }

    /// Of a number that its process still has, or nobody: then its connection has ended, too.
    fn numbered(pid: Option<i32>) -> Option<Self> {
        match pid.and_then(Pid::from_raw).map(descriptor_of) {
            Some(Ok(descriptor)) => Some(Self::watched(pid, descriptor)),
            Some(Err(Errno::SRCH)) => None,
            _ => Some(Self { pid, end: None }),
        }
    }

    fn watched(pid: Option<i32>, descriptor: OwnedFd) -> Self {
        Self { pid, end: End::of(descriptor).ok() }
    }

    /// The process of a keeper.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_process(pid: u32, descriptor: OwnedFd) -> std::io::Result<Self> {
        Ok(Self { pid: i32::try_from(pid).ok(), end: Some(End::of(descriptor)?) })
    }
}
