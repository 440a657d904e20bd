//! The socket between this program and a process of it that it starts: descriptors, arguments and short messages.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The standard input, and two files for each of at most 16 locks: a row has a slot file too.
pub(crate) const DESCRIPTORS: usize = 1 + 2 * 16;

/// Where a reader has ended, that is an error and no signal.
#[cfg(target_os = "linux")]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Lines of JSON to and from another process of this program.
#[derive(Debug)]
pub(crate) struct JsonLines {
    stream: BufReader<UnixStream>,
    /// What was read of the next line.
    line: Vec<u8>,
}

/// For a line that the other side has to read.
const WRITING: Duration = Duration::from_secs(1);
/// Far more than the locks of a session take.
const LONGEST_LINE: usize = 1 << 24;

impl JsonLines {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new() }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        self.stream.get_ref()
    }

    /// The next line; `None` after the last one. Cancel safe.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let line = next_line(&mut self.stream, &mut self.line, LONGEST_LINE).await?;
        Ok(line.map(|line| serde_json::from_slice(&line)).transpose()?)
    }

    /// # Errors
    /// The other side has ended, or does not read.
    pub(crate) async fn write(&mut self, message: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(message)? + "\n";
        timeout(WRITING, self.stream.write_all(line.as_bytes())).await?
    }
}

/// The next line of at most `longest` bytes, of which there may be a part in `line`; `None` after the last one, or if it is longer.
/// Cancel safe.
async fn next_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    longest: usize,
) -> io::Result<Option<Vec<u8>>> {
    let left = longest.saturating_sub(line.len());
    stream.take(left as u64).read_until(b'\n', line).await?;
    Ok((line.last() == Some(&b'\n')).then(|| std::mem::take(line)))
}

/// Sends a short line without waiting.
pub(crate) fn send(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(message)? + "\n";
    rustix::net::send(socket, line.as_bytes(), NO_SIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// An environment variable to set, or to remove if it has no value.
pub(crate) type Variable = (&'static str, Option<String>);

pub(crate) fn set_environment(command: &mut Command, environment: &[Variable]) {
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Starts this program again, in a role of its own and with a socket as its standard input.
pub(crate) fn start(configure: impl FnOnce(&mut Command)) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = UnixStream::from_std(ours)?;
    let mut program = Command::new("/proc/self/exe");
    program.arg0("fencelock").stdin(OwnedFd::from(theirs));
    configure(&mut program);
    Ok((program.spawn()?, ours))
}

/// Sends what the started process needs: the standard input of this process, `files`, and words, which may be longer than the buffer of
/// the socket.
pub(crate) async fn send_job(socket: &UnixStream, words: &[OsString], files: &[OwnedFd]) -> io::Result<()> {
    // No argument contains a zero.
    let job: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"]).flatten().copied().collect();
    send_descriptors(socket, job.len(), files)?;
    let mut rest = &job[..];
    while !rest.is_empty() {
        let send = || Ok(rustix::net::send(socket, rest, NO_SIGNAL | SendFlags::DONTWAIT)?);
        rest = &rest[socket.async_io(Interest::WRITABLE, send).await?..];
    }
    Ok(())
}

fn send_descriptors(socket: impl AsFd, length: usize, files: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let stdin = io::stdin();
    let descriptors: Vec<_> = std::iter::once(stdin.as_fd()).chain(files.iter().map(AsFd::as_fd)).collect();
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many locks"));
    }
    sendmsg(socket, &[IoSlice::new(&length.to_le_bytes())], &mut control, NO_SIGNAL)?;
    Ok(())
}
