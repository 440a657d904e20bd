//! The socket between this program and a process of it that it starts: descriptors, arguments and short messages.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, take};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::{Child, Command};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The standard input, and two files for each of at most 16 locks: a row has a slot file too.
pub(crate) const DESCRIPTORS: usize = 1 + 2 * 16;

/// Where a reader has ended, that is an error and no signal.
#[cfg(target_os = "linux")]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// The lines of another process. There may be many such processes, so without a line it keeps no memory.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    stream: R,
    /// The longest line, with its end.
    longest: usize,
    /// What was read, beginning with lines that were taken.
    bytes: Vec<u8>,
    taken: usize,
}

/// What is read from another process.
pub(crate) enum Read<'a> {
    Line(&'a [u8]),
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(stream: R, longest: usize) -> Self {
        Self { stream, longest, bytes: Vec::new(), taken: 0 }
    }

    /// The next line. Cancel safe.
    pub(crate) async fn next(&mut self) -> Read<'_> {
        let begun = take(&mut self.taken);
        if begun == self.bytes.len() {
            self.bytes = Vec::new();
        }
        self.bytes.drain(..begun.min(self.bytes.len()));
        let mut searched = 0;
        loop {
            let end = self.bytes[searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| searched + end + 1).filter(|end| *end <= self.longest) {
                self.taken = end;
                return Read::Line(&self.bytes[..end]);
            }
            searched = self.bytes.len();
            if searched >= self.longest {
                return Read::TooLong;
            }
            if !poll_fn(|cx| self.poll_read(cx)).await {
                return Read::End;
            }
        }
    }

    /// Whether there is more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut space = ReadBuf::uninit(&mut space);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space));
        self.bytes.extend_from_slice(space.filled());
        Poll::Ready(read.is_ok() && !space.filled().is_empty())
    }
}

/// Lines of JSON to and from another process of this program.
#[derive(Debug)]
pub(crate) struct JsonLines(Lines<UnixStream>);

/// For a line that the other side has to read.
const WRITING: Duration = Duration::from_secs(1);
/// Far more than the locks of a session take.
const LONGEST_LINE: usize = 1 << 24;

impl JsonLines {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(Lines::new(stream, LONGEST_LINE))
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.0.stream
    }

    /// The next line; `None` after the last one. Cancel safe.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Read::Line(line) = self.0.next().await else { return Ok(None) };
        Ok(Some(serde_json::from_slice(line)?))
    }

    /// # Errors
    /// The other side has ended, or does not read.
    pub(crate) async fn write(&mut self, message: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(message)? + "\n";
        timeout(WRITING, self.0.stream.write_all(line.as_bytes())).await?
    }
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
