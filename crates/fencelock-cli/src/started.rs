//! The other side of the socket: what the started process receives.

use crate::child_socket::DESCRIPTORS;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::Pid;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// The next line, of which there may be a part in `read`, without waiting. `None` at the end.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd, read: &mut Vec<u8>) -> io::Result<Option<T>> {
    loop {
        if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = read.drain(..=end).collect();
            return Ok(Some(serde_json::from_slice(&line)?));
        }
        let mut bytes = [0; 256];
        match rustix::net::recv(&socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(None),
            Ok((count, _)) => read.extend(&bytes[..count]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The standard input, if it is a socket of the parent process: `role` is internal to that `command`, and serves no other process.
pub(crate) fn of_parent(role: &str, command: &str) -> Option<BorrowedFd<'static>> {
    let socket = rustix::stdio::stdin();
    let peer = peer(socket);
    if peer.is_none() {
        eprintln!("fencelock: {role} is internal to `fencelock {command}`; see `fencelock {command} --help`");
    }
    // A parent that has died in the meantime needs no report.
    (peer.is_some() && peer == rustix::process::getppid()).then_some(socket)
}

/// The process that created this socket pair, according to the kernel; `None` if unknown, or of another user.
fn peer(socket: impl AsFd) -> Option<Pid> {
    let made_by = getsockopt(&socket, PeerCredentials).ok()?;
    // Its number is zero if it is outside the namespace of this process.
    (made_by.uid() == rustix::process::geteuid().as_raw()).then(|| Pid::from_raw(made_by.pid())).flatten()
}

/// What the watcher needs to start the command.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) stdin: OwnedFd,
    /// The files of the locks.
    pub(crate) locks: Vec<OwnedFd>,
    pub(crate) command: Vec<OsString>,
}

impl Job {
    /// Waits for the job. It fails if the peer has exited, or if this process may not have so many open files.
    pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; size_of::<usize>()];
        // Reads these bytes only: the kernel attaches the descriptors to them.
        let received = recvmsg(socket, &mut [IoSliceMut::new(&mut length)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes < length.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        let rights = control.drain().filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut descriptors = rights.flatten();
        let stdin = descriptors.next().ok_or(ErrorKind::UnexpectedEof)?;
        let locks = descriptors.collect();
        let mut command = vec![0; usize::from_le_bytes(length)];
        let mut stream = File::from(socket.try_clone_to_owned()?);
        stream.read_exact(&mut command)?;
        let words = command.split_inclusive(|byte| *byte == 0);
        let command = words.map(|word| OsString::from_vec(word[..word.len() - 1].to_vec())).collect();
        Ok(Self { stdin, locks, command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child_socket::send_job;
    use std::io::Write;
    use tokio::net::UnixStream;

    #[test]
    fn a_message_received_in_parts_is_complete() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut read, put) = (Vec::new(), |bytes: &[u8]| (&ours).write_all(bytes).unwrap());
        put(b"[1,");
        let error = receive::<(u8, u8)>(&theirs, &mut read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        put(b"2]\n[3,4]\n");
        let mut next = || receive::<(u8, u8)>(&theirs, &mut read).unwrap();
        assert_eq!((next(), next()), (Some((1, 2)), Some((3, 4))));
        drop(ours);
        assert_eq!(next(), None);
    }

    #[test]
    fn the_peer_of_a_pair_is_its_creator_and_a_file_has_none() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(&ours), Some(rustix::process::getpid()));
        assert_eq!(peer(File::open("/dev/null").unwrap()), None);
    }

    #[tokio::test]
    async fn a_received_job_is_the_sent_one() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = UnixStream::from_std(ours).unwrap();
        let command: Vec<_> = ["sh", "-c", "", "a b\nc"].map(OsString::from).into();
        let lock = File::open("/dev/null").unwrap();
        send_job(&ours, &command, &[lock.try_clone().unwrap().into()]).await.unwrap();
        let job = Job::receive(theirs.as_fd()).unwrap();
        assert_eq!(job.command, command);
        let file = |descriptor: BorrowedFd<'_>| rustix::fs::fstat(descriptor).map(|file| (file.st_dev, file.st_ino));
        assert_eq!(file(job.stdin.as_fd()), file(io::stdin().as_fd()));
        assert_eq!(job.locks.iter().map(|lock| file(lock.as_fd())).collect::<Vec<_>>(), [file(lock.as_fd())]);
        drop(ours);
        assert!(Job::receive(theirs.as_fd()).is_err(), "the peer has exited");
    }
}
