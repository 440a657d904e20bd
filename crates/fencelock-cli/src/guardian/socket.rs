use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::Pid;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// What was read of a message. All messages in one direction have `N` bytes.
#[derive(Debug)]
pub(super) struct Inbox<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Inbox<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }

    /// Where the rest of the message goes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// So many bytes have come. Returns the message if it is whole.
    pub(super) fn took(&mut self, bytes: usize) -> Option<[u8; N]> {
        self.filled += bytes;
        (self.filled == N).then(|| {
            self.filled = 0;
            self.bytes
        })
    }
}

/// Sends a whole message, or fails at once.
pub(super) fn send(socket: impl AsFd, message: &[u8]) -> io::Result<()> {
    // The kernel takes so few bytes whole or not at all.
    rustix::net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Reads what is there, without waiting for it; nothing is the end.
pub(super) fn receive(socket: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    let (length, _) = rustix::net::recv(socket, room, RecvFlags::DONTWAIT)?;
    Ok(length)
}

/// Hands the standard input of this process over.
pub(super) fn send_stdin(socket: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"0")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The process that made this pair of sockets, as the kernel has noted it; `None` if it is none, or of another user.
pub(super) fn peer(socket: impl AsFd) -> Option<Pid> {
    let made_by = rustix::net::sockopt::socket_peercred(socket).ok()?;
    (made_by.uid == rustix::process::geteuid()).then_some(made_by.pid)
}

/// Waits for the other side's standard input; `None` if that side is gone.
pub(super) fn receive_stdin(socket: impl AsFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    // The byte alone, so that nothing of the next message is lost.
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
    fn a_message_that_comes_in_pieces_is_one() {
        let mut inbox = Inbox::<3>::new();
        inbox.room()[..2].copy_from_slice(b"ab");
        assert_eq!(inbox.took(2), None);
        assert_eq!(inbox.room().len(), 1);
        inbox.room().copy_from_slice(b"c");
        assert_eq!(inbox.took(1), Some(*b"abc"));
        assert_eq!(inbox.room().len(), 3);
    }

    #[test]
    fn the_peer_of_a_pair_is_who_made_it_and_a_file_has_none() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(&ours), Some(rustix::process::getpid()));
        assert_eq!(peer(std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn the_standard_input_that_arrives_is_the_one_that_was_sent() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        send_stdin(&ours).unwrap();
        let got = rustix::fs::fstat(receive_stdin(&theirs).unwrap()).unwrap();
        let sent = rustix::fs::fstat(io::stdin()).unwrap();
        assert_eq!((got.st_dev, got.st_ino), (sent.st_dev, sent.st_ino));
        drop(ours);
        assert!(receive_stdin(&theirs).is_none(), "the other side is gone");
    }
}
