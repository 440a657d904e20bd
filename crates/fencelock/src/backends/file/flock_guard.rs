//! The kernel's lock on one lock file, and a probe for the lock of another process.

use super::flock;
use super::permission;
use super::record::{Damage, LONGEST, Record};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How often a record is read until two readings agree; a write of one line is far shorter than that.
const READINGS: u32 = 8;

/// An exclusive lock on a lock file that its path named when it was taken. Dropping it lets go.
///
/// The file is open for writing, so the kernel reports its end to whoever watches the directory, whatever ended it.
#[derive(Debug)]
pub(super) struct FlockGuard {
    file: fs::File,
    path: PathBuf,
    inode: (u64, u64),
    pid: u32,
    /// This very call created the file: there is no earlier record to miss.
    pub(super) created: bool,
}

/// The state of a lock file, found by a short shared lock.
#[derive(Debug)]
pub(super) enum Probe {
    /// No exclusive lock, or no file at all.
    Free,
    /// Somebody has the exclusive lock; the record may still be that of an earlier holder.
    Held(Result<Record, Damage>),
}

impl FlockGuard {
    /// Takes the lock, creating the file if it is missing; `None` if anybody has a lock on it, or just replaced it.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let Some((file, created)) = open_or_create(path)? else { return Ok(None) };
        let meta = file.metadata()?;
        permission::check_plain(&meta)?;
        if flock::try_exclusive(&file)? == flock::TryLock::Refused {
            return Ok(None);
        }
        let guard =
            Self { file, path: path.to_owned(), inode: (meta.dev(), meta.ino()), pid: std::process::id(), created };
        Ok(guard.is_in_place()?.then_some(guard))
    }

    /// Whether the path still names the file that is locked. If not, the next one to come locks another file.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        match fs::symlink_metadata(&self.path) {
            Ok(meta) => Ok((meta.dev(), meta.ino()) == self.inode),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The record of the last hold.
    pub(super) fn read(&self) -> io::Result<Result<Record, Damage>> {
        Ok(Record::from_bytes(&first_bytes(&self.file)?))
    }

    /// When the file was made, if nobody has written to it yet, in microseconds of the wall clock; `None` also where the file
    /// system does not know.
    pub(super) fn created_empty_at(&self) -> Option<u64> {
        let meta = self.file.metadata().ok().filter(|meta| meta.len() == 0)?;
        let since = meta.created().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_micros()).ok()
    }

    /// Writes the record over the old one, in one piece.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let line = record.to_line();
        let length = line.len() as u64;
        self.file.write_all_at(line.as_bytes(), 0)?;
        if self.file.metadata()?.len() > length {
            self.file.set_len(length)?;
        }
        Ok(())
    }

    /// Unlocks at once, even if a child between fork and exec has a copy of the file for a moment.
    pub(super) fn unlock(&self) -> io::Result<()> {
        flock::unlock(&self.file)
    }
}

impl Drop for FlockGuard {
    fn drop(&mut self) {
        // A forked child has a copy of this value; the lock is its parent's.
        if self.pid == std::process::id() {
            let _ = self.unlock();
        }
    }
}

/// Looks whether anybody has the lock, by asking for a shared one and giving it back.
///
/// It is the only look that is right everywhere: `/proc/locks` hides the locks of other containers and numbers devices
/// its own way on btrfs. While it lasts, an exclusive lock is refused; so nobody may answer "busy" because of a refused
/// exclusive lock, only because of a refused shared one. The file is opened for reading, which wakes no watcher.
pub(super) fn probe(path: &Path) -> io::Result<Probe> {
    let file = match options().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Probe::Free),
        Err(error) => return Err(error),
    };
    permission::check_plain(&file.metadata()?)?;
    match flock::try_shared(&file)? {
        flock::TryLock::Locked => flock::unlock(&file).map(|()| Probe::Free),
        flock::TryLock::Refused => read_settled(&file).map(Probe::Held),
    }
}

/// Keeps those from locking the file who may not write to the directory, if that can be done. What is locked stays locked.
pub(super) fn tighten_file(path: &Path) {
    if let Ok(file) = options().read(true).open(path) {
        let _ = permission::tighten(&file, path);
    }
}

/// Neither follows a link that somebody planted, nor waits for the other end of a pipe.
fn options() -> OpenOptions {
    use rustix::fs::OFlags;
    let mut options = OpenOptions::new();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// `None` if the file came or went in between.
///
/// It is never opened with `O_CREAT` once it is there: in a sticky directory like `/tmp`, Linux refuses that for files
/// of other users (`fs.protected_regular`).
fn open_or_create(path: &Path) -> io::Result<Option<(fs::File, bool)>> {
    match options().read(true).write(true).open(path) {
        Ok(file) => {
            permission::tighten(&file, path)?;
            return Ok(Some((file, false)));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match permission::create(options().read(true).write(true), path) {
        Ok(file) => Ok(Some((file, true))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads beside a holder that may be writing: until two readings agree.
fn read_settled(file: &fs::File) -> io::Result<Result<Record, Damage>> {
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

/// The file system gives a regular file's bytes in one go, as many as there are.
fn first_bytes(file: &fs::File) -> io::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::os::unix::fs::symlink;
    use std::thread;

    fn is_free(path: &Path) -> Option<()> {
        matches!(probe(path).unwrap(), Probe::Free).then_some(())
    }

    #[test]
    fn a_locked_file_is_not_locked_again() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        let guard = FlockGuard::take(&path).unwrap().unwrap();
        assert!(guard.created && FlockGuard::take(&path).unwrap().is_none());
        drop(guard);
        assert!(!FlockGuard::take(&path).unwrap().unwrap().created);
    }

    #[test]
    fn letting_go_frees_the_lock_even_if_the_file_has_been_inherited() {
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
        guard.pid += 1;
        drop(guard);
        assert!(is_free(&path).is_none());
        drop(parents);
        is_free(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_replaced_is_not_in_place() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        let guard = FlockGuard::take(&path).unwrap().unwrap();
        assert!(guard.is_in_place().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!guard.is_in_place().unwrap());
        fs::write(&path, "").unwrap();
        assert!(!guard.is_in_place().unwrap());
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
    fn a_pipe_in_its_place_is_an_error_and_nobody_waits_for_its_other_end() {
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
        assert!(FlockGuard::take(&path).unwrap().is_some(), "it has one name again");
    }

    #[test]
    fn a_shorter_record_leaves_nothing_of_a_longer_one() {
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
