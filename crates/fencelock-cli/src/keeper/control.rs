//! The sockets of the keepers of this user: one for each hold, in the lock directory, or for other backends in the default lock
//! directory of the user. Its name is the first half of the holder ID, which does not allow a release.

use super::Request;
use crate::exit::Exit;
use crate::failure::Failure;
use fencelock::{Client, HolderId};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, open, renameat, statat, unlinkat};
use rustix::process::{geteuid, umask};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, timeout};

const SUFFIX: &str = ".keeper";
/// A socket gets its name when it can answer: one that refuses a connection is left over by a keeper that was killed.
const UNFINISHED: &str = ".keeper-new";
/// For a request or a reply of one line.
const LINE: Duration = Duration::from_secs(1);
/// A keeper releases within two seconds, or leaves its locks to the end of their leases.
const ANSWER: Duration = Duration::from_secs(6);
/// At most 16 keys of 512 bytes, in JSON.
const LONGEST_LINE: u64 = 1 << 18;
/// The most keepers that are asked what they hold, among the first entries of the directory, which other users may fill.
const MOST: usize = 256;
const ENTRIES: usize = 1 << 16;

/// The directory with the sockets of keepers.
#[derive(Debug)]
pub(super) struct Keepers {
    /// Opened: a path of a socket has at most 107 bytes, and a directory may be longer.
    directory: OwnedFd,
}

impl Keepers {
    /// The keepers of locks of this client, if there can be any.
    pub(super) fn of(client: &Client) -> Option<Self> {
        let directory = directory(client)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Some(Self { directory: open(directory, flags, Mode::empty()).ok()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()).into()
    }

    /// Asks the keeper of this hold; `None` if there is none.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn ask(&self, holder: HolderId, request: &Request) -> Result<Option<Value>, Failure> {
        let name = name_of(holder);
        // A keeper drops a request when a lease ends meanwhile.
        for _ in 0..2 {
            let mut keeper = match self.connect(&name).await {
                Ok(keeper) => keeper,
                // Its queue is full, as that of a stopped process.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent(None)),
                Err(_) => return Ok(None),
            };
            match timeout(ANSWER, exchange(&mut keeper, request)).await {
                Ok(Ok(answer)) => return Ok(Some(answer)),
                Ok(Err(_)) => {}
                Err(_) => return Err(silent(keeper.peer_cred().ok().and_then(|peer| peer.pid()))),
            }
        }
        // It has ended: what became of the lock, the backend tells.
        Ok(None)
    }

    /// What the keepers hold.
    pub(super) async fn states(&self) -> Vec<Value> {
        let (mut states, begun) = (Vec::new(), Instant::now());
        for name in self.names().into_iter().take_while(|_| begun.elapsed() < ANSWER) {
            let Ok(mut keeper) = self.connect(&name).await else { continue };
            if let Ok(Ok(state)) = timeout(LINE, exchange(&mut keeper, &Request::State)).await {
                states.push(state);
            }
        }
        states
    }

    /// Removes what killed keepers of this user have left.
    async fn sweep(&self) {
        for name in self.names() {
            if self.connect(&name).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = unlinkat(&self.directory, name, AtFlags::empty());
            }
        }
    }

    /// Of the sockets of this user.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).into_iter().flatten().flatten().take(ENTRIES);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_own = |name: &String| {
            let found = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| {
                FileType::from_raw_mode(found.st_mode) == FileType::Socket && found.st_uid == geteuid().as_raw()
            })
        };
        names.filter(|name| name.ends_with(SUFFIX)).filter(is_own).take(MOST).collect()
    }

    /// A keeper of another user, who may write to the directory, is none, also for root: anybody could claim a release.
    async fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let keeper = UnixStream::connect(self.path(name)).await?;
        if !is_of(&keeper, geteuid().as_raw()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(keeper)
    }
}

/// The directory of the sockets.
#[cfg(feature = "file")]
fn directory(client: &Client) -> Option<PathBuf> {
    use fencelock::backends::{File, file_directory};
    let name = client.name();
    if name.starts_with("file:") { file_directory(&name).ok() } else { File::default_dir_to_inspect().ok() }
}

#[cfg(not(feature = "file"))]
fn directory(_: &Client) -> Option<PathBuf> {
    None
}

async fn exchange(keeper: &mut UnixStream, request: &Request) -> io::Result<Value> {
    let line = serde_json::to_string(request)? + "\n";
    keeper.write_all(line.as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(keeper.take(LONGEST_LINE)).read_line(&mut line).await?;
    serde_json::from_str(&line).map_err(io::Error::from)
}

fn is_of(peer: &UnixStream, user: u32) -> bool {
    peer.peer_cred().is_ok_and(|peer| peer.uid() == user)
}

fn silent(keeper: Option<i32>) -> Failure {
    let keeper = keeper.map(|pid| format!(" ({pid})")).unwrap_or_default();
    let why = "does not answer: it may be stopped, and do what it was asked when it continues";
    Failure::new(Exit::Unreachable, format!("the process that keeps this lock{keeper} {why}"))
}

fn name_of(holder: HolderId) -> String {
    let half: String = holder.to_string().chars().take(16).collect();
    half + SUFFIX
}

/// The sockets of one keeper. They are removed with it.
#[derive(Debug)]
pub(super) struct Control {
    keepers: Keepers,
    listeners: Vec<(String, UnixListener)>,
}

impl Control {
    /// Binds a socket for each hold.
    pub(super) async fn bind(client: &Client, holders: &[HolderId]) -> io::Result<Self> {
        let keepers = Keepers::of(client).ok_or(io::ErrorKind::NotFound)?;
        keepers.sweep().await;
        let mut control = Self { keepers, listeners: Vec::new() };
        for holder in holders {
            let name = name_of(*holder);
            let unfinished = name.replace(SUFFIX, UNFINISHED);
            // For this user only. This process has one thread.
            let before = umask(Mode::all() - Mode::RUSR - Mode::WUSR);
            let listener = UnixListener::bind(control.keepers.path(&unfinished));
            umask(before);
            let (listener, directory) = (listener?, &control.keepers.directory);
            if let Err(error) = renameat(directory, &unfinished, directory, &name) {
                let _ = unlinkat(directory, &unfinished, AtFlags::empty());
                return Err(error.into());
            }
            control.listeners.push((name, listener));
        }
        Ok(control)
    }

    /// The next request of this user. Cancel safe: a request that is dropped gets no reply.
    pub(super) async fn next(&self) -> (Request, Reply) {
        loop {
            let Ok(stream) = self.accept().await else {
                // Without a descriptor for it.
                tokio::time::sleep(LINE).await;
                continue;
            };
            // This user, or root.
            if !is_of(&stream, geteuid().as_raw()) && !is_of(&stream, 0) {
                continue;
            }
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            let read = timeout(LINE, (&mut stream).take(LONGEST_LINE).read_line(&mut line)).await;
            if let (Ok(Ok(_)), Ok(request)) = (read, serde_json::from_str(&line)) {
                return (request, Reply(stream.into_inner()));
            }
        }
    }

    async fn accept(&self) -> io::Result<UnixStream> {
        poll_fn(|cx| {
            for (_, listener) in &self.listeners {
                if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                    return Poll::Ready(accepted.map(|(stream, _)| stream));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for (name, _) in &self.listeners {
            let _ = unlinkat(&self.keepers.directory, name, AtFlags::empty());
        }
    }
}

/// The way back to whoever sent a request.
#[derive(Debug)]
pub(super) struct Reply(UnixStream);

impl Reply {
    pub(super) async fn send(mut self, answer: &Value) {
        let line = format!("{answer}\n");
        let _ = timeout(LINE, self.0.write_all(line.as_bytes())).await;
    }

    pub(super) async fn refuse(self, why: &str) {
        self.send(&json!({ "done": false, "why": why })).await;
    }

    /// Whether it is done is unknown.
    pub(super) async fn leave_open(self, why: &str) {
        self.send(&json!({ "done": null, "why": why })).await;
    }

    /// `process 42`, or who else it is.
    pub(super) fn from(&self) -> String {
        let peer = self.0.peer_cred().ok();
        let (pid, user) = peer.map_or((None, None), |peer| (peer.pid(), Some(peer.uid())));
        match (pid, user) {
            (Some(pid), Some(user)) => format!("process {pid} of user {user}"),
            _ => "an unknown process".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_socket_does_not_allow_a_release() {
        let name = name_of(HolderId::from_bytes([0xab; 16]));
        assert_eq!(name, format!("{}.keeper", "ab".repeat(8)));
    }
}
