//! Standard error, whose reader may have stopped.
//!
//! A write to a full pipe waits, and so does one to a terminal after ^S. This program must renew and release its locks meanwhile, so a
//! line waits for a moment only, and is dropped then.

use crate::terminal::is_foreground_of;
use crate::text::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::stdio::stderr;
use rustix::termios::{isatty, tcgetwinsize};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use unicode_width::UnicodeWidthChar;

/// Writes one line with each call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stderr;

/// A reader that is only slow takes a line within this time.
const LINE_TIMEOUT: Duration = Duration::from_millis(100);
/// A pipe that is ready for writing has room for this many bytes (pipe(7)).
const PIPE_BUF: usize = 4096;

impl Write for Stderr {
    /// If stderr cannot be written, there is nowhere to report it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        OUTPUT.lock().unwrap_or_else(PoisonError::into_inner).write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A panic is reported like other errors, and to a reader that has stopped too.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = match Backtrace::capture() {
            trace if trace.status() == BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        let what = plain(&panic.to_string().replace('\n', " "));
        // It never fails.
        let _ = Stderr.write_all(format!("fencelock: a bug, please report it: {what}{trace}\n").as_bytes());
    }));
}

static OUTPUT: LazyLock<Mutex<Output>> =
    LazyLock::new(|| Mutex::new(Output { kind: Kind::of_stderr(), stalled: false, torn: false }));

#[derive(Debug)]
struct Output {
    kind: Kind,
    /// The last line was dropped. The next one does not wait.
    stalled: bool,
    /// A part of it was written.
    torn: bool,
}

#[derive(Debug)]
enum Kind {
    /// A file, whose writes do not depend on a reader.
    File,
    /// A pipe or a terminal, opened again: the flags of stderr itself also apply to the command, which inherits it.
    Reopened(OwnedFd),
    Socket,
    /// A pipe or a terminal that cannot be opened again, for example that of another user.
    Shared,
}

impl Kind {
    fn of_stderr() -> Self {
        let kind = fstat(stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket,
            Ok(FileType::CharacterDevice) if !isatty(stderr()) => Self::File,
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                open("/proc/self/fd/2", flags, Mode::empty()).map_or(Self::Shared, Self::Reopened)
            }
            _ => Self::File,
        }
    }
}

/// Closes what was opened again, after stderr itself was replaced by something without readers.
#[cfg(target_os = "linux")]
pub(crate) fn leave() {
    OUTPUT.lock().unwrap_or_else(PoisonError::into_inner).kind = Kind::File;
}

impl Output {
    fn write(&mut self, line: &[u8]) {
        if matches!(self.kind, Kind::File) {
            let _ = io::stderr().write_all(line);
            return;
        }
        let line = if self.torn { [b"\n", line].concat() } else { line.to_vec() };
        let until = Instant::now() + if self.stalled { Duration::ZERO } else { LINE_TIMEOUT };
        let mut rest = &line[..];
        while !rest.is_empty() {
            match self.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if has_room(until) => {}
                Err(_) => break,
            }
        }
        self.stalled = !rest.is_empty();
        self.torn = if self.stalled { self.torn || rest.len() < line.len() } else { false };
    }

    fn try_write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match &self.kind {
            Kind::Reopened(output) => rustix::io::write(output, bytes),
            Kind::Socket => send(stderr(), bytes, SendFlags::DONTWAIT),
            Kind::Shared if !has_room(Instant::now()) => Err(Errno::AGAIN),
            _ => rustix::io::write(stderr(), &bytes[..bytes.len().min(PIPE_BUF)]),
        }
    }
}

/// Waits for room, until this time. `false` if there is none then.
fn has_room(until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.min(LINE_TIMEOUT).subsec_nanos()) };
    let stderr = stderr();
    let mut outputs = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut outputs, Some(&left)).is_ok_and(|ready| ready > 0)
}

/// Whether stderr is a terminal that this process may draw on: the lines of a background job would overwrite those of another one.
pub(crate) fn is_terminal_in_foreground() -> bool {
    is_foreground_of(stderr())
}

/// For a terminal that does not know its width.
const DEFAULT_WIDTH: u16 = 80;

/// Replaces the line of the cursor by as much of this one as fits, if this process may draw.
pub(crate) fn draw(line: &str) {
    if is_terminal_in_foreground() {
        let width = tcgetwinsize(stderr()).ok().map(|size| size.ws_col).filter(|width| *width > 0);
        let mut left = usize::from(width.unwrap_or(DEFAULT_WIDTH));
        let fits = |c: char| {
            left = left.checked_sub(c.width().unwrap_or(0))?;
            Some(c)
        };
        let line: String = line.chars().map_while(fits).collect();
        // It never fails.
        let _ = Stderr.write_all(format!("\r\x1b[2K{line}").as_bytes());
    }
}
