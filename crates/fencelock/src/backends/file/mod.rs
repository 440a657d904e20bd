//! Locks among the processes of one machine: one file a key, and the kernel's lock on it.
//!
//! # How it works
//! The lock is an exclusive `flock` on `DIR/<key>.lock`, taken without waiting. The file stays for ever; deleting it
//! would let two processes lock two files of one name. In it is one line about the last hold: the holder, its process,
//! and its fencing token, so that tokens grow from hold to hold, whichever process takes them. The kernel alone says
//! whether the key is held; the line says by whom.
//!
//! A holder that crashes, even by `kill -9`, is freed by the kernel, at once: there is no lease, and no renewal. On
//! Linux, other processes' waiters are woken by inotify when the holder's file is closed by any process; elsewhere
//! they poll.
//!
//! # What it does not promise
//! - **A deleted or replaced lock file** (a cleaner of temporary files) takes the lock away: the next process locks the
//!   new file. The holder learns it from its next renewal, so holds are worth renewing although they do not expire.
//! - **Network file systems**: whether their locks exclude other machines depends on the server, its protocol and its
//!   options. Every call here works on files at once and does not give way to other tasks: microseconds on a local
//!   disk, but as long as the server is away on a hard NFS mount. Use a local directory.
//! - **After a power failure or a full disk** the line may be lost. Then the next fencing token is the wall clock's,
//!   greater than all before unless the clock was set back since.
//! - **Fork**: a child that is forked without `exec` has a copy of the open files, and while it lives the kernel keeps
//!   its parent's locks. The child itself holds nothing: in it, its parent's keys answer "busy". Programs started with
//!   `exec` inherit nothing.
//! - **Small directories**: every key that was ever locked keeps its file. Use names of things, not of requests.
//! - **First come, first served** among processes: the first claim after a release gets the key.

mod claim;
mod diagnose;
mod directory;
mod flock;
mod flock_guard;
mod held;
mod name;
mod permission;
mod record;
mod scan;
pub(crate) mod scheme;
#[cfg(test)]
mod scratch;
mod table;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "unwatched.rs"]
mod watch;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod watch;

use directory::Directory;
use fencelock_core::{
    Acquire, Answer, Backend, BootClock, BoxFuture, Capabilities, Claim, Clock, Eviction, Finding, HolderId, Holding,
    Key, Listener, Listeners, Release, Renew, Renewal, Unknown,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::HoldTable;
use watch::Watch;

/// Locks among the processes of one machine, freed by the kernel when their holder ends.
///
/// No service and no runtime is needed. A hold lasts until it is released or its process ends; it never expires.
///
/// ```
/// use fencelock::backends::File;
/// use fencelock_core::Backend;
///
/// # let dir = std::env::temp_dir().join(format!("fencelock-doc-{}", std::process::id()));
/// let locks = File::open(&dir)?;
/// assert!(!locks.capabilities().expires);
/// # std::fs::remove_dir(&dir).unwrap();
/// # Ok::<(), fencelock_core::Unknown>(())
/// ```
#[derive(Debug)]
pub struct File {
    directory: Directory,
    clock: Arc<dyn Clock>,
    table: HoldTable,
    listeners: Arc<Listeners>,
    watch: Watch,
}

impl File {
    /// The locks of this directory, which is created if it is missing, for this user alone (mode 0700).
    ///
    /// A relative path is made absolute here, and [`Backend::name`] shows it so: two processes that name `locks` from
    /// different working directories have two places.
    ///
    /// To share locks among users, create the directory yourself: lock files can be used by whoever may write to it, and by
    /// nobody else, unless the umask of the process that creates them keeps them for its user.
    ///
    /// # Errors
    /// [`Unknown`] if the directory cannot be created, read and written, with the words of the operating system and
    /// what to do; it is permanent if access is denied or the file system is read-only.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Unknown> {
        Self::open_with_clock(dir, Arc::new(BootClock))
    }

    /// The same with another clock. Only its wall time is used: for fencing tokens, and for how long a key is held.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn open_with_clock(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Result<Self, Unknown> {
        let directory = Directory::open(dir.into())?;
        let listeners = Arc::<Listeners>::default();
        let watch = Watch::new(directory.clone(), listeners.clone());
        Ok(Self { directory, clock, table: HoldTable::new(), listeners, watch })
    }

    /// This user's own lock directory: `fencelock-<uid>` in `/run/lock`, or in `/tmp` where there is no such place;
    /// created for this user alone if it is missing.
    ///
    /// It is the same for a user's shells, cron jobs and services, so that they exclude each other. Jobs of different
    /// users that must exclude each other name a directory of their own.
    ///
    /// # Errors
    /// [`Unknown`], permanently, if the directory is a symbolic link, belongs to another user, or can be changed by
    /// others: somebody may have been there first.
    pub fn default_dir() -> Result<PathBuf, Unknown> {
        directory::default_dir()
    }

    fn io_error(&self, what: &str, path: &Path, error: &io::Error) -> Unknown {
        let name = path.file_name().unwrap_or_default().display();
        self.directory.unknown(&format!("cannot {what} {name}"), error)
    }
}

impl Backend for File {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.cross_process = true;
        capabilities
    }

    fn name(&self) -> String {
        self.directory.name()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(&listener);
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Acquire> {
        Box::pin(async {
            claim.supported_by(self)?;
            self.claim(claim)
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async { self.watch_for_end(key) })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async { renewals.iter().map(|renewal| self.renew_one(renewal)).collect() })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async { self.free(key, holder) })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async { Ok(self.holding(key, self.inspect_key(key)?)) })
    }

    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async { Ok(self.scan()?.into_held()) })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async { self.refuse(seen) })
    }

    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async { self.findings() })
    }
}
