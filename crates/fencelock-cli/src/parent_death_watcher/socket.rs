use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::Pid;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// A partially read message. All messages in one direction have `N` bytes.
#[derive(Debug)]
pub(super) struct MessageBuffer<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> MessageBuffer<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }

    /// The free part of the buffer.
    pub(super) fn free(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Records received bytes. Returns the message when it is complete.
    pub(super) fn advance(&mut self, bytes: usize) -> Option<[u8; N]> {
        self.filled += bytes;
        (self.filled == N).then(|| {
            self.filled = 0;
            self.bytes
        })
    }
}

/// Sends a whole message, or fails at once.
pub(super) fn send(socket: impl AsFd, message: &[u8]) -> io::Result<()> {
    // The kernel sends such a short message whole or not at all.
    rustix::net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Reads the available bytes without waiting; zero bytes mean the end.
pub(super) fn receive(socket: impl AsFd, free: &mut [u8]) -> io::Result<usize> {
    let (length, _) = rustix::net::recv(socket, free, RecvFlags::DONTWAIT)?;
    Ok(length)
}

/// Sends the standard input of this process.
pub(super) fn send_stdin(socket: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"0")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The process that created this socket pair, according to the kernel; `None` if unknown, or of another user.
pub(super) fn peer(socket: impl AsFd) -> Option<Pid> {
    let made_by = rustix::net::sockopt::socket_peercred(socket).ok()?;
    (made_by.uid == rustix::process::geteuid()).then_some(made_by.pid)
}

/// Receives the standard input of the peer; `None` if the peer has exited.
pub(super) fn receive_stdin(socket: impl AsFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    // Reads one byte only, so that nothing of the next message is lost.
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
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
        assert_eq!(peer(std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn the_received_standard_input_is_the_sent_one() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        send_stdin(&ours).unwrap();
        let got = rustix::fs::fstat(receive_stdin(&theirs).unwrap()).unwrap();
        let sent = rustix::fs::fstat(io::stdin()).unwrap();
        assert_eq!((got.st_dev, got.st_ino), (sent.st_dev, sent.st_ino));
        drop(ours);
        assert!(receive_stdin(&theirs).is_none(), "the peer has exited");
    }
}
