//! Where sessions come from: the standard streams, a socket with a name, or one of systemd.

use super::message::{ErrorReply, Unread};
use super::peer::Peer;
use crate::exit::{Exit, Failure};
use nix::unistd::Group;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::ioctl_fionbio;
use rustix::process::umask;
use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

/// The pause when there is no descriptor for the next connection.
const REST: Duration = Duration::from_millis(100);
/// For another server that starts at the same time.
const PATIENCE: u32 = 50;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The two directions of a session.
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

impl Connection {
    /// `None` if the process that has started this one has ended.
    pub(super) fn of_standard_streams() -> Result<Option<Self>, Failure> {
        let Some(peer) = Peer::parent() else { return Ok(None) };
        let streams = || -> io::Result<(Reader, Writer)> {
            let reader: Reader = match copy_of(io::stdin())? {
                Some(copy) => Box::new(pipe::Receiver::from_owned_fd_unchecked(copy)?),
                None => Box::new(tokio::io::stdin()),
            };
            let writer: Writer = match copy_of(io::stdout())? {
                Some(copy) => Box::new(pipe::Sender::from_owned_fd_unchecked(copy)?),
                None => Box::new(tokio::io::stdout()),
            };
            Ok((reader, writer))
        };
        let (reader, writer) = streams().map_err(|error| Failure::system("use the standard streams", error))?;
        Ok(Some(Self { peer, reader, writer }))
    }

    /// Says why it is not served.
    pub(super) fn refuse(self, why: ErrorReply) {
        let mut last = Unread::new(self.writer);
        tokio::spawn(async move {
            let _ = last.answer(&Value::Null, &Err(why));
            let _ = timeout(REST, last.flush()).await;
        });
    }
}

/// Of a pipe or a socket, which need not block a thread, and are read and written alike.
fn copy_of(stream: impl AsFd) -> io::Result<Option<OwnedFd>> {
    if !matches!(FileType::from_raw_mode(fstat(&stream)?.st_mode), FileType::Fifo | FileType::Socket) {
        return Ok(None);
    }
    let copy = stream.as_fd().try_clone_to_owned()?;
    ioctl_fionbio(&copy, true)?;
    Ok(Some(copy))
}

/// A socket that sessions connect to.
pub(super) struct Listener {
    socket: UnixListener,
    /// Made for it, and removed with it.
    pub(super) file: Option<SocketFile>,
}

impl Listener {
    pub(super) fn at(path: &Path, mode: u32, group: Option<&str>) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::system(&format!("listen on {}", path.display()), error);
        let group = group.map(number_of_group).transpose()?;
        // Two servers that start at the same time would both find that nobody listens.
        let _alone = lock_directory(path).map_err(failed)?;
        make_room(path)?;
        // Nobody may connect before the permissions are there.
        let before = umask(Mode::from_raw_mode(0o177));
        let socket = UnixListener::bind(path);
        umask(before);
        let socket = socket.map_err(failed)?;
        let file = SocketFile { path: path.to_owned(), file: file_at(path).map_err(failed)? };
        chown(path, None, group)
            .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
            .map_err(failed)?;
        Ok(Self { socket, file: Some(file) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn of_systemd() -> Result<Self, Failure> {
        Err(Failure::new(Exit::Usage, "--listen systemd: there is none on this system; use unix:PATH"))
    }

    /// The socket of a unit: `sd_listen_fds(3)`.
    #[cfg(target_os = "linux")]
    pub(super) fn of_systemd() -> Result<Self, Failure> {
        use rustix::net::AddressFamily;
        use rustix::net::sockopt::{socket_acceptconn, socket_domain};
        use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
        let refused = |why| Failure::new(Exit::Usage, format!("--listen systemd: {why}"));
        let here = getpid();
        if number("LISTEN_PID").and_then(Pid::from_raw) != Some(here) || number("LISTEN_FDS") != Some(1) {
            return Err(refused("systemd has passed no socket, or several: see systemd.socket(5)"));
        }
        let failed = |error: io::Error| Failure::system("use the socket of systemd", error);
        let this = pidfd_open(here, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        // The first one.
        let socket = pidfd_getfd(&this, 3, PidfdGetfdFlags::empty()).map_err(|error| failed(error.into()))?;
        if socket_domain(&socket).ok() != Some(AddressFamily::UNIX) || !socket_acceptconn(&socket).unwrap_or_default() {
            return Err(refused("ListenStream= of its unit must be the path of a Unix socket"));
        }
        let socket = std::os::unix::net::UnixListener::from(socket);
        let socket = socket.set_nonblocking(true).and_then(|()| UnixListener::from_std(socket));
        Ok(Self { socket: socket.map_err(failed)?, file: None })
    }

    /// The next connection whose process lives. Cancel safe.
    pub(super) async fn accept(&self) -> Connection {
        let mut is_told = false;
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    if let Some(peer) = Peer::of_socket(&stream) {
                        let (reader, writer) = stream.into_split();
                        return Connection { peer, reader: Box::new(reader), writer: Box::new(writer) };
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!("cannot accept a connection: {error}");
                    }
                    sleep(REST).await;
                }
            }
        }
    }
}

fn number_of_group(group: &str) -> Result<u32, Failure> {
    let found = group.parse().ok().or_else(|| Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw()));
    found.ok_or_else(|| Failure::new(Exit::Usage, format!("--group {group}: there is no such group")))
}

/// Nobody else makes or replaces a socket there while this is open.
fn lock_directory(path: &Path) -> io::Result<OwnedFd> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..PATIENCE {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(REST / 5),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "another process has locked its directory"))
}

/// Removes the socket of a server that has ended, or is about to.
fn make_room(path: &Path) -> Result<(), Failure> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let refused = |why: &str| Err(Failure::new(Exit::Usage, format!("--listen unix:{}: {why}", path.display())));
    if !there.file_type().is_socket() {
        return refused("this file is no socket, and is not replaced");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
            return refused(&format!("cannot tell whether another server listens there: {error}"));
        }
        Ok(stream) if !is_ending(&stream) => return refused("another server listens there"),
        Ok(_) | Err(_) => {}
    }
    fs::remove_file(path).map_err(|error| Failure::system(&format!("replace {}", path.display()), error))
}

/// Whether it is a server that is being stopped, whose successor may take its place: only such a one speaks first.
fn is_ending(stream: &std::os::unix::net::UnixStream) -> bool {
    let mut line = String::new();
    let read =
        stream.set_read_timeout(Some(REST)).and_then(|()| BufReader::new(stream).take(1 << 12).read_line(&mut line));
    let answer: Value = read.ok().and_then(|_| serde_json::from_str(&line).ok()).unwrap_or_default();
    answer["error"]["code"] == Exit::System.code()
}

/// A socket that is removed at the end, unless it has been replaced.
pub(super) struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_at(&self.path).is_ok_and(|now| now == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What tells a file from others that have its path before and after it.
fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}
