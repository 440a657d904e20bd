//! Completions, in files next to the lock files.
//!
//! A completion is one line of text. It is written to a new file, which is then renamed to the old one, and the file and the
//! directory are flushed to the disk. So a reader gets the old or the new line, even after a power failure. Only the process that
//! holds the lock writes. The file is never removed by its age, so a caller with longer windows has nothing to confirm.

use super::File;
use super::flock_guard::FlockGuard;
use super::permission;
use fencelock_core::{
    ClearCompletion, Completion, CompletionRead, Fault, HolderId, Key, Mode, Unknown, WriteCompletion,
};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How much of an unreadable file is shown.
const SHOWN: usize = 60;

impl File {
    pub(super) fn read(&self, key: &Key) -> Result<CompletionRead, Unknown> {
        let completion = self.stored(key)?;
        Ok(CompletionRead::new(completion, self.clock.wall_micros()))
    }

    pub(super) fn write(
        &self,
        key: &Key,
        holder: &HolderId,
        completion: &Completion,
    ) -> Result<WriteCompletion, Unknown> {
        // The client releases the lock after the reply, so it stays locked during the write.
        let hold = self.held_here(key, holder)?;
        if hold.is_none_or(|hold| hold.record.mode != Mode::Exclusive) {
            return Ok(WriteCompletion::NotHeld);
        }
        let stored = self.stored(key)?;
        let merged = match stored.clone() {
            Some(stored) => stored.merge(completion.clone(), self.clock.wall_micros()),
            None => completion.clone(),
        };
        if stored.as_ref() != Some(&merged) {
            let path = self.directory.completion_file_of(key);
            replace(&path, &merged.to_wire()).map_err(|error| self.io_error("write", &path, &error))?;
        }
        Ok(WriteCompletion::Written)
    }

    /// Needs the lock, because a holder may replace the file at the same time.
    pub(super) fn clear(&self, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
        let lock = self.directory.file_of(key);
        let guard = FlockGuard::take(&lock).map_err(|error| self.io_error("lock", &lock, &error))?;
        let Some(_guard) = guard else {
            let detail = format!("{key} is locked: its completion can be cleared when the run has ended");
            return Err(Unknown::new(self.directory.name(), Fault::Busy, detail));
        };
        match self.stored(key)? {
            None => return Ok(ClearCompletion::Absent),
            Some(stored) if stored.token > seen.token => return Ok(ClearCompletion::Changed),
            Some(_) => {}
        }
        let path = self.directory.completion_file_of(key);
        let removed = fs::remove_file(&path).and_then(|()| flush_directory(&path));
        removed.map_err(|error| self.io_error("remove", &path, &error))?;
        Ok(ClearCompletion::Cleared)
    }

    fn stored(&self, key: &Key) -> Result<Option<Completion>, Unknown> {
        let path = self.directory.completion_file_of(key);
        let Some(bytes) = first_bytes(&path).map_err(|error| self.io_error("read", &path, &error))? else {
            return Ok(None);
        };
        let text = str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
        match text.and_then(Completion::from_wire) {
            Some(completion) => Ok(Some(completion)),
            None => Err(self.unreadable(&path, &bytes)),
        }
    }

    fn unreadable(&self, path: &Path, bytes: &[u8]) -> Unknown {
        let begins = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
        let detail = format!(
            "{} is no completion that this version can read: {begins:?}; nothing runs and nothing was changed: use a later \
             version of fencelock, or remove the file if the work may run again",
            path.display()
        );
        Unknown::new(self.directory.name(), Fault::Unsupported, detail)
    }
}

/// One byte more than the longest completion with its line end, to detect a longer one.
fn first_bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use rustix::fs::OFlags;
    let mut options = OpenOptions::new();
    // Does not follow symbolic links, and does not wait for the other end of a pipe.
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    permission::check_plain(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(Completion::MAX_BYTES as u64 + 2).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The caller holds the lock, so no other process uses the name of the new file.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("once-new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // A process that was killed during a write has left the file.
        _ => {}
    }
    let mut file = permission::create(OpenOptions::new().write(true), &new)?;
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    flush_directory(path)
}

/// The name of a file is stored in its directory.
fn flush_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
}
