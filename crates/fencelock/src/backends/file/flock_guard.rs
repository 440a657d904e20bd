//! The kernel lock on one lock file, and a probe for the lock of another process.

use super::permission;
use super::record::{Damage, LONGEST, Record, may_have_slots};
use crate::identity::Process;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// The maximum number of reads of a record until two agree; writing one line is much shorter.
const READINGS: u32 = 8;

/// How often a holder refreshes the times of its files. Programs that clean directories delete files after days.
const YOUNG: Duration = Duration::from_secs(3600);

/// A lock on the file to which the path referred when it was locked. Dropping it unlocks.
///
/// The file is open for writing, so the kernel reports its close to watchers of the directory, whatever the cause.
#[derive(Debug)]
pub(super) struct FlockGuard {
    pub(super) file: File,
    path: PathBuf,
    inode: (u64, u64),
    process: Process,
    /// Whether this call has created the file, so that there is no earlier record.
    pub(super) created: bool,
}

/// The state of a lock file, determined by a short shared lock.
#[derive(Debug)]
pub(super) enum Probe {
    /// No exclusive lock, or no file.
    Free,
    /// No exclusive lock, but there may be holders of a row. The record, if it is not lost, contains the last token and the number of slots.
    Row(Result<Record, Damage>),
    /// Another process has the exclusive lock; the record may still be that of an earlier holder.
    Held(Result<Record, Damage>),
}

impl FlockGuard {
    /// Acquires the exclusive lock, and creates the file if it is missing; `None` if the file is locked, or was just
    /// replaced.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        Self::lock(path, try_exclusive)
    }

    /// The same with a shared lock.
    pub(super) fn share(path: &Path) -> io::Result<Option<Self>> {
        Self::lock(path, try_shared)
    }

    fn lock(path: &Path, attempt: fn(&File) -> io::Result<bool>) -> io::Result<Option<Self>> {
        let Some((file, created)) = open_or_create(path)? else { return Ok(None) };
        let meta = file.metadata()?;
        permission::check_plain(&meta)?;
        if !attempt(&file)? {
            return Ok(None);
        }
        let guard =
            Self { file, path: path.to_owned(), inode: permission::inode(&meta), process: Process::current(), created };
        Ok(permission::is_only_name(path, guard.inode)?.then_some(guard))
    }

    /// Turns an exclusive lock into a shared one. `false` means that it is lost: flock(2) does not promise
    /// that this is one step, although local file systems of Linux and of the BSDs do it in one.
    pub(super) fn downgrade(&self) -> io::Result<bool> {
        try_shared(&self.file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still refers to the locked file. Otherwise the next process locks another file.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        Ok(permission::named(&self.path, self.inode)?.is_some())
    }

    /// Gives a file that this process has created the permissions of another file, so that the same users can lock both.
    pub(super) fn share_permissions_of(&self, other: &Self) -> io::Result<()> {
        if self.created { self.share_permissions_with(&other.file.metadata()?) } else { Ok(()) }
    }

    /// The same with the metadata of the other file.
    pub(super) fn share_permissions_with(&self, other: &fs::Metadata) -> io::Result<()> {
        let mode = fs::Permissions::from_mode(other.mode() & 0o666);
        if self.created { self.file.set_permissions(mode) } else { Ok(()) }
    }

    /// Sets the times of the file to now, if they are older than [`YOUNG`]. It is neither written nor closed, so no waiter wakes.
    pub(super) fn refresh(&self) -> io::Result<()> {
        // A time in the future is young, too.
        if self.file.metadata()?.modified()?.elapsed().is_ok_and(|age| age >= YOUNG) {
            // Other times than the current one may be set only by the owner of the file.
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            rustix::fs::futimens(&self.file, &Timestamps { last_access: now, last_modification: now })?;
        }
        Ok(())
    }

    /// Notifies the watchers of the directory, although the lock stays: closes a file that is open for writing.
    pub(super) fn notify_watchers(&self) {
        // If this fails, the waiters still poll.
        let _ = options().write(true).open(&self.path);
    }

    /// The record of the last hold.
    pub(super) fn read(&self) -> io::Result<Result<Record, Damage>> {
        Ok(Record::from_bytes(&first_bytes(&self.file)?))
    }

    /// When the file was created, if it is still empty, in microseconds of the wall clock; `None` also if the file
    /// system does not store it.
    pub(super) fn created_empty_at(&self) -> Option<u64> {
        let meta = self.file.metadata().ok().filter(|meta| meta.len() == 0)?;
        let since = meta.created().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_micros()).ok()
    }

    /// Replaces the record in one write.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let line = record.to_line();
        let length = line.len() as u64;
        self.file.write_all_at(line.as_bytes(), 0)?;
        if self.file.metadata()?.len() > length {
            self.file.set_len(length)?;
        }
        Ok(())
    }

    /// A copy of the open file, which has this lock too.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Unlocks immediately, even if a child between fork and exec has a copy of the descriptor for a moment.
    pub(super) fn unlock(&self) -> io::Result<()> {
        unlock(&self.file)
    }
}

impl Drop for FlockGuard {
    fn drop(&mut self) {
        // A forked child has a copy of this value; the lock belongs to its parent.
        if self.process.is_current() {
            let _ = self.unlock();
        }
    }
}

/// Probes for an exclusive lock with a short shared lock.
///
/// No other check is correct everywhere: `/proc/locks` hides the locks of other containers, and numbers devices
/// differently on btrfs. During the probe, an exclusive lock is refused, so "busy" must not follow from a refused
/// exclusive lock, only from a refused shared one. The file is opened for reading, which wakes no watcher.
pub(super) fn probe(path: &Path) -> io::Result<Probe> {
    let Some(file) = existing(options().read(true).open(path))? else { return Ok(Probe::Free) };
    permission::check_plain(&file.metadata()?)?;
    if !try_shared(&file)? {
        return read_settled(&file).map(Probe::Held);
    }
    let row = if may_have_slots(&first_bytes(&file)?) { Some(read_settled(&file)?) } else { None };
    unlock(&file)?;
    Ok(row.map_or(Probe::Free, Probe::Row))
}

/// Reads while a holder may write: until two reads agree.
fn read_settled(file: &File) -> io::Result<Result<Record, Damage>> {
    let mut last = first_bytes(file)?;
    for _ in 0..READINGS {
        let again = first_bytes(file)?;
        if again == last {
            break;
        }
        last = again;
    }
    Ok(Record::from_bytes(&last))
}

/// A regular file returns all its bytes in one read.
pub(super) fn first_bytes(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LONGEST];
    let length = loop {
        match file.read_at(&mut bytes, 0) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    bytes.truncate(length);
    Ok(bytes)
}

// flock(2), which `std::fs::File` supports only since Rust 1.89.

/// An attempt does not wait: `false` if another process has a conflicting lock.
pub(super) fn try_exclusive(file: &File) -> io::Result<bool> {
    attempt(file, FlockOperation::NonBlockingLockExclusive)
}

pub(super) fn try_shared(file: &File) -> io::Result<bool> {
    attempt(file, FlockOperation::NonBlockingLockShared)
}

pub(super) fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

fn attempt(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

// Opens lock files.

/// Prevents users without write permission to the directory from locking the file, if possible. Existing locks stay.
pub(super) fn tighten_file(path: &Path) {
    if let Ok(file) = options().read(true).open(path) {
        let _ = permission::tighten(&file, path);
    }
}

/// Does not follow symbolic links, and does not wait for the other end of a pipe.
pub(super) fn options() -> OpenOptions {
    use rustix::fs::OFlags;
    let mut options = OpenOptions::new();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// `None` if there is no such file.
pub(super) fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// `None` if the file was created or deleted concurrently.
///
/// An existing file is never opened with `O_CREAT`: in a sticky directory like `/tmp`, Linux refuses that for files
/// of other users (`fs.protected_regular`).
pub(super) fn open_or_create(path: &Path) -> io::Result<Option<(File, bool)>> {
    if let Some(file) = existing(options().read(true).write(true).open(path))? {
        permission::tighten(&file, path)?;
        return Ok(Some((file, false)));
    }
    match permission::create(options().read(true).write(true), path) {
        Ok(file) => Ok(Some((file, true))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    fn is_free(path: &Path) -> Option<()> {
        (!matches!(probe(path).unwrap(), Probe::Held(_))).then_some(())
    }

    #[test]
    fn unlocking_frees_the_lock_even_if_the_file_was_inherited() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        let guard = FlockGuard::take(&path).unwrap().unwrap();
        let _inherited = guard.file.try_clone().unwrap();
        drop(guard);
        is_free(&path).unwrap();
    }

    #[test]
    fn a_forked_child_does_not_free_its_parents_lock() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        let mut guard = FlockGuard::take(&path).unwrap().unwrap();
        let parents = guard.file.try_clone().unwrap();
        guard.process = guard.process.of_the_parent();
        drop(guard);
        assert!(is_free(&path).is_none());
        drop(parents);
        is_free(&path).unwrap();
    }

    #[test]
    fn a_downgrade_is_never_lost_to_exclusive_attempts() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..5000 {
                    let Some(guard) = FlockGuard::take(&path).unwrap() else { continue };
                    assert!(guard.downgrade().unwrap());
                }
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                drop(FlockGuard::take(&path).unwrap());
            }
        });
    }

    #[test]
    fn a_file_that_its_last_holder_deleted_is_never_locked() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        let delete_while_held = || {
            let mut taken = 0;
            while taken < 2000 {
                let Some(guard) = FlockGuard::take(&path).unwrap() else { continue };
                assert!(guard.is_in_place().unwrap(), "only a holder deletes the file");
                fs::remove_file(&path).unwrap();
                taken += 1;
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(delete_while_held);
            }
        });
    }

    #[test]
    fn a_link_or_a_directory_in_its_place_is_an_error() {
        let scratch = Scratch::new();
        let (path, target) = (scratch.path().join("a.lock"), scratch.path().join("target"));
        symlink(&target, &path).unwrap();
        assert!(FlockGuard::take(&path).is_err() && !target.exists());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(FlockGuard::take(&path).is_err());
    }

    #[test]
    fn a_pipe_in_its_place_is_an_immediate_error() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        assert!(probe(&path).is_err());
        assert!(FlockGuard::take(&path).is_err());
    }

    #[test]
    fn a_file_with_a_second_name_is_an_error_and_is_not_written() {
        let scratch = Scratch::new();
        let (path, elsewhere) = (scratch.path().join("a.lock"), scratch.path().join("elsewhere"));
        fs::write(&elsewhere, "precious").unwrap();
        fs::hard_link(&elsewhere, &path).unwrap();
        let refused = FlockGuard::take(&path).unwrap_err().to_string();
        assert!(refused.contains("2 names"), "{refused}");
        assert!(probe(&path).is_err());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        fs::remove_file(&elsewhere).unwrap();
        assert!(FlockGuard::take(&path).unwrap().is_some(), "the file has a single name again");
    }

    #[test]
    fn a_shorter_record_replaces_a_longer_one() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        fs::write(&path, "x".repeat(9000)).unwrap();
        let guard = FlockGuard::take(&path).unwrap().unwrap();
        assert!(guard.read().unwrap().is_err());
        let line = r#"{"state":"free","key":"a","owner":"h:1","fence":7,"since":7,"pid":1,"holder":"<id>"}"#;
        let line = line.replace("<id>", &"0".repeat(32)) + "\n";
        let record = Record::from_bytes(line.as_bytes()).unwrap();
        guard.write(&record).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), line);
    }
}
