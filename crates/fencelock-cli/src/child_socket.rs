//! The socket between this program and a process of it that it starts: descriptors, arguments and short messages.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The standard input, and two files for each of at most 16 locks: a row has a slot file too.
const DESCRIPTORS: usize = 1 + 2 * 16;

/// A partially read message. All messages in one direction have `N` bytes.
#[derive(Debug)]
pub(crate) struct MessageBuffer<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> MessageBuffer<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }

    /// The free part of the buffer.
    pub(crate) fn free(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Records received bytes. Returns the message when it is complete.
    pub(crate) fn advance(&mut self, bytes: usize) -> Option<[u8; N]> {
        self.filled += bytes;
        (self.filled == N).then(|| {
            self.filled = 0;
            self.bytes
        })
    }
}

/// Sends without waiting, and returns the number of bytes that were sent: all of a short message.
pub(crate) fn send(socket: impl AsFd, message: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

/// Reads the available bytes without waiting; zero bytes mean the end.
pub(crate) fn receive(socket: impl AsFd, free: &mut [u8]) -> io::Result<usize> {
    let (length, _) = rustix::net::recv(socket, free, RecvFlags::DONTWAIT)?;
    Ok(length)
}

/// Sends the length of the encoded command, the standard input of this process, and `locks`.
pub(crate) fn send_descriptors(socket: impl AsFd, length: usize, locks: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let stdin = io::stdin();
    let descriptors: Vec<_> = std::iter::once(stdin.as_fd()).chain(locks.iter().map(AsFd::as_fd)).collect();
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many locks"));
    }
    sendmsg(socket, &[IoSlice::new(&length.to_le_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The arguments of the command as bytes. No argument contains a zero.
pub(crate) fn encode_command(command: &[OsString]) -> Vec<u8> {
    command.iter().flat_map(|word| [word.as_bytes(), b"\0"]).flatten().copied().collect()
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
    let made_by = rustix::net::sockopt::socket_peercred(socket).ok()?;
    (made_by.uid == rustix::process::geteuid()).then_some(made_by.pid)
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

    #[test]
    fn a_message_received_in_parts_is_complete() {
        let mut buffer = MessageBuffer::<3>::new();
        buffer.free()[..2].copy_from_slice(b"ab");
        assert_eq!(buffer.advance(2), None);
        assert_eq!(buffer.free().len(), 1);
        buffer.free().copy_from_slice(b"c");
        assert_eq!(buffer.advance(1), Some(*b"abc"));
        assert_eq!(buffer.free().len(), 3);
    }

    #[test]
    fn the_peer_of_a_pair_is_its_creator_and_a_file_has_none() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(&ours), Some(rustix::process::getpid()));
        assert_eq!(peer(File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn a_received_job_is_the_sent_one() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let command: Vec<_> = ["sh", "-c", "", "a b\nc"].map(OsString::from).into();
        let lock = File::open("/dev/null").unwrap();
        let encoded = encode_command(&command);
        send_descriptors(&ours, encoded.len(), &[lock.try_clone().unwrap().into()]).unwrap();
        send(&ours, &encoded).unwrap();
        let job = Job::receive(theirs.as_fd()).unwrap();
        assert_eq!(job.command, command);
        let file = |descriptor: BorrowedFd<'_>| rustix::fs::fstat(descriptor).map(|file| (file.st_dev, file.st_ino));
        assert_eq!(file(job.stdin.as_fd()), file(io::stdin().as_fd()));
        assert_eq!(job.locks.iter().map(|lock| file(lock.as_fd())).collect::<Vec<_>>(), [file(lock.as_fd())]);
        drop(ours);
        assert!(Job::receive(theirs.as_fd()).is_err(), "the peer has exited");
    }
}
