use super::ROLE;
use super::watched::Watched;
use crate::child_socket::{encode_command, send_descriptors};
use crate::context::write_delivered;
use crate::exit::Exit;
use crate::failure::Failure;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What a keeper sends to `acquire`: a letter, the length, and the text or the exit code.
pub(super) const ANSWER: u8 = b'a';
pub(super) const EXIT: u8 = b'e';
/// What `acquire` sends when the answer is delivered.
pub(super) const DELIVERED: u8 = b'd';

/// Starts a keeper for the process `pid`, with the arguments of this process, and waits until it holds its locks. Signals have their
/// default action: if this process ends, the keeper gives up.
pub(crate) fn start(pid: u32) -> Result<Exit, Failure> {
    let watched = Watched::open(pid)?;
    let mut keeper = Keeper::start(&watched)
        .map_err(|error| Failure::system("start the process that keeps the lock", Failure::why_not_started(&error)))?;
    let (kind, text) = keeper.next().map_err(|_| {
        let why =
            "the process that was to keep the lock was killed; if it had acquired the lock, that ends with its lease";
        Failure::new(Exit::System, why)
    })?;
    if kind != ANSWER {
        // It has reported why.
        return Ok(Exit::Child(text.first().copied().unwrap_or_default()));
    }
    write_delivered(&String::from_utf8_lossy(&text)).map_err(|failure| keeper.give_up(&failure))?;
    let told = keeper.socket.write_all(&[DELIVERED]);
    told.map_err(|error| Failure::system("reach the process that keeps the lock", error))?;
    Ok(Exit::Success)
}

struct Keeper {
    socket: UnixStream,
}

impl Keeper {
    fn start(watched: &Watched) -> io::Result<Self> {
        let (mut socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("fencelock").arg(ROLE).stdin(OwnedFd::from(theirs));
        // It writes no output; a reader of that of `acquire` must not wait for it. This is there also where /dev/null is not.
        command.stdout(Stdio::from(watched.descriptor()?));
        // It is not waited for: it outlives this process.
        drop(command.spawn()?);
        // The socket of the other side is closed here with the command.
        drop(command);
        let words = encode_command(&std::env::args_os().collect::<Vec<OsString>>());
        send_descriptors(&socket, words.len(), &[watched.descriptor()?])?;
        socket.write_all(&words)?;
        Ok(Self { socket })
    }

    fn next(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.socket.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u64::from(u32::from_le_bytes(length));
        let mut text = Vec::new();
        Read::by_ref(&mut self.socket).take(length).read_to_end(&mut text)?;
        Ok((kind, text))
    }

    /// The answer cannot be delivered, so nobody could release the lock.
    fn give_up(&mut self, failure: &Failure) -> Failure {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        // The keeper closes its side when it has released the lock.
        let released = self.socket.read_to_end(&mut Vec::new()).is_ok();
        let outcome = if released { "the lock was released" } else { "the lock ends with its lease" };
        Failure::new(failure.exit, format!("{}; {outcome}", failure.message))
    }
}

/// A message of the keeper.
pub(super) fn message(kind: u8, text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&[kind], &length[..], text].concat()
}
