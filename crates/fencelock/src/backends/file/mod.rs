//! Locks among the processes of one machine: one file per key, and the kernel's lock on it.
//!
//! # How it works
//! The exclusive lock is an exclusive `flock` on `DIR/<key>.lock`, taken without waiting. The file is never deleted, because
//! two processes could then lock two files of one name. It contains one line about the last hold: the holder, its process,
//! and its fencing token, so that tokens increase from hold to hold in all processes. The kernel decides
//! whether the key is held; the line names the holder.
//!
//! When a holder crashes, even by `kill -9`, the kernel releases its lock immediately: there is no lease, and no renewal. On
//! Linux, waiters of other processes are woken by inotify when any process closes the file of the holder; elsewhere
//! they poll.
//!
//! Each holder of a shared lock or of permits has a shared `flock` on that file, and an exclusive one on a slot file
//! `DIR/<key>.lock.<number>` with its own line. While a writer waits, no new holder is admitted, and the writer gets the key
//! when the last holder has released it.
//!
//! # Limits
//! - **A deleted or replaced lock file** (by a cleaner of temporary files) ends the lock: the next process locks the
//!   new file. On Linux, inotify reports it to the holder at once; elsewhere it detects it at its next renewal, so renewals are
//!   useful although holds do not expire. A renewal also keeps the times of the file young, for programs that delete old files.
//! - **Network file systems**: whether their locks exclude other machines depends on the server, its protocol and its
//!   options. Every call blocks on file operations and does not yield to other tasks: microseconds on a local
//!   disk, but as long as the server is unreachable on a hard NFS mount. Use a local directory.
//! - **After a power failure or a full disk**, the line may be lost. Then the next fencing token is the time of the wall clock,
//!   greater than all earlier tokens unless the clock was set back.
//! - **Fork**: a child that is forked without `exec` has a copy of the open files, and while it lives, the kernel keeps
//!   the locks of its parent. The child itself holds no lock: in it, the keys of its parent are busy. Programs started with
//!   `exec` inherit nothing.
//! - **Small directories**: every key that was ever locked keeps its file. Use keys for resources, not for requests.
//! - **First come, first served** among processes: the first claim after a release gets the key. A claim of many permits can be
//!   overtaken by claims of few.
//!
//! # Files
//! `flock_guard` is the kernel's lock, `claim` acquires and releases, `inspect` reads the holders, their slots and rows, `writer_mark` keeps
//! them out for a writer, `table` has the locks of this process, `watch` reads inotify, `record` is the content of a file.

mod claim;
mod completion;
mod directory;
mod doctor;
mod flock_guard;
mod inspect;
mod permission;
mod record;
pub(crate) mod scheme;
#[cfg(test)]
mod scratch;
mod table;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "unwatched.rs"]
mod watch;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod watch;
mod writer_mark;

use directory::Directory;
use fencelock_core::{
    Backend, BackendReport, BootClock, BoxFuture, Capabilities, Clock, HolderId, Key, Listener, Listeners, Reply,
    Request, Unknown,
};
use inspect::{Holds, Scan};
use rustix::fs::{Access, AtFlags, CWD};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use table::HoldTable;
use watch::Watch;
use writer_mark::WriterMarks;

/// Locks of processes on one machine, released by the kernel when their holder exits.
///
/// It needs no service and no runtime. A hold lasts until it is released or its process exits; it never expires.
///
/// ```
/// use fencelock::backends::File;
/// use fencelock_core::Backend;
///
/// # let dir = std::env::temp_dir().join(format!("fencelock-doc-{}", std::process::id()));
/// let locks = File::open(&dir)?;
/// assert!(!locks.capabilities().expires);
/// assert!(!dir.exists(), "the first lock creates it");
/// # Ok::<(), fencelock_core::Unknown>(())
/// ```
#[derive(Debug)]
pub struct File {
    directory: Directory,
    clock: Arc<dyn Clock>,
    table: HoldTable,
    marks: WriterMarks,
    listeners: Arc<Listeners>,
    watch: Watch,
}

impl File {
    /// The locks of this directory. If it is missing, the first claim creates it, private to this user (mode 0700); nothing else does.
    ///
    /// A relative path is made absolute, as [`Backend::name`] shows: two processes that use `locks` in
    /// different working directories use two directories. So a relative path in a URL is refused.
    ///
    /// To share locks among users, create the directory yourself: users who may write to it can use its lock files, and
    /// no other users, unless the umask of the process that creates a file makes it private.
    ///
    /// # Errors
    /// [`Unknown`] if the directory cannot be read and written, or is missing and this user may not create it, with the error of the
    /// operating system and the remedy; it is permanent if access is denied or the file system is read-only.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Unknown> {
        Self::open_with_clock(dir, Arc::new(BootClock))
    }

    /// Opens a directory with another clock. Only its wall time is used: for fencing tokens, and for the duration of holds.
    ///
    /// # Errors
    /// See [`File::open`].
    pub fn open_with_clock(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Result<Self, Unknown> {
        Ok(Self::of(Directory::open(dir.into())?, clock))
    }

    /// The directory is not checked here, so that a diagnosis can report its problems.
    fn unchecked(dir: PathBuf) -> Result<Self, Unknown> {
        Ok(Self::of(Directory::at(dir)?, Arc::new(BootClock)))
    }

    fn of(directory: Directory, clock: Arc<dyn Clock>) -> Self {
        let listeners = Arc::<Listeners>::default();
        let watch = Watch::new(directory.clone(), listeners.clone());
        Self { directory, clock, table: HoldTable::new(), marks: WriterMarks::default(), listeners, watch }
    }

    /// The lock directory of this user: `fencelock-<uid>` in `/run/lock`, or in `/tmp` if that does not exist;
    /// created private to this user if it is missing. [`File::default_dir_to_inspect`] does not create it.
    ///
    /// It is the same for the shells, cron jobs and services of a user, so that they exclude each other. Only a process that does not
    /// see `/run/lock` uses another one; then this logs a warning, once per process. Jobs of different users that must exclude each
    /// other need a common directory.
    ///
    /// # Errors
    /// [`Unknown`], permanently, if the directory is a symbolic link, belongs to another user, or can be changed by
    /// other users, who may have created it.
    pub fn default_dir() -> Result<PathBuf, Unknown> {
        directory::private_dir(directory::default_path())
    }

    /// The same, but the directory may be missing: for programs that show locks and acquire none.
    ///
    /// # Errors
    /// See [`File::default_dir`].
    pub fn default_dir_to_inspect() -> Result<PathBuf, Unknown> {
        directory::private_dir_to_inspect(directory::default_path())
    }

    /// The current holders of the key.
    fn inspect_key(&self, key: &Key) -> Result<Holds, Unknown> {
        Holds::seen(self, &self.directory.file_of(key), |record| record.key == *key)
    }

    fn io_error(&self, what: &str, path: &Path, error: &io::Error) -> Unknown {
        let of = |path: &Path| {
            let name = path.file_name().unwrap_or_default().display();
            self.directory.unknown(&format!("cannot {what} {name}"), error)
        };
        let unknown = of(path);
        // A lock has several files, and the advice is about one.
        if unknown.is_unopened() { culprit(path).map_or(unknown, |path| of(&path)) } else { unknown }
    }
}

/// The file beside this lock file that cannot be opened, if the lock file can.
fn culprit(lock_file: &Path) -> Option<PathBuf> {
    let may_use = |path: &Path| {
        let access = rustix::fs::accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS);
        access.is_ok() && fs::symlink_metadata(path).is_ok_and(|meta| permission::check_plain(&meta).is_ok())
    };
    if !may_use(lock_file) {
        return None;
    }
    let slots = (0..record::MOST_SLOTS).map(|slot| directory::slot_path(lock_file, slot));
    let slots = slots.take_while(|path| path.symlink_metadata().is_ok());
    slots.chain([directory::row_path(lock_file)]).find(|path| path.symlink_metadata().is_ok() && !may_use(path))
}

impl Backend for File {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.cross_process, capabilities.lists) = (true, true);
        (capabilities.completions, capabilities.mode_changes) = (true, true);
        (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
        capabilities
    }

    fn name(&self) -> String {
        self.directory.name()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            Request::List => Reply::of(async || Scan::of(self).await.map(Scan::into_listed)),
            Request::Diagnose => Reply::of(async || BackendReport::of_findings(doctor::findings(self).await)),
            Request::TryOut(_) => Reply::of(async || vec![doctor::run(self).await]),
            _ => Box::pin(async move { self.answer(request) }),
        }
    }

    fn descriptors(&self, key: &Key, holder: &HolderId) -> io::Result<Vec<OwnedFd>> {
        self.table.get(key, holder).map_or_else(|| Ok(Vec::new()), |hold| hold.descriptors())
    }
}

impl File {
    fn answer(&self, request: Request<'_>) -> Reply {
        match request {
            Request::Claim(claim, _) => self.claim(claim).into(),
            Request::Renew(renewals) => renewals.iter().map(|one| self.renew_one(one)).collect::<Vec<_>>().into(),
            Request::Release(key, holder) => self.free(key, holder).into(),
            Request::Inspect(key) => {
                self.inspect_key(key).map(|seen| seen.holding(key, self.clock.wall_micros())).into()
            }
            Request::Watch(key) => self.watch_for_end(key).into(),
            Request::Downgrade(hold, _) => self.make_shared(&hold.key, &hold.holder).into(),
            Request::Resize(key, limit) => self.set_limit(key, limit).into(),
            Request::Evict(seen) => self.refuse(seen).into(),
            Request::ReadCompletion(key) => self.read_completion(key).into(),
            Request::WriteCompletion(key, holder, done) => self.write_completion(key, holder, done).into(),
            Request::ConfirmCompletion(..) => Reply::Done(()),
            Request::ClearCompletion(key, seen) => self.clear_completion(key, seen).into(),
            _ => request.unsupported(self.name()),
        }
    }
}
