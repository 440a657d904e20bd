//! Completions, in files next to the lock files.
//!
//! A completion is one line of text. It is written to a new file, which is then renamed to the old one, and the file and the
//! directory are flushed to the disk. So a reader gets the old or the new line, even after a power failure. A file of another user
//! that cannot be replaced is overwritten. Only the process that holds the lock writes. The file is never removed by its age, so a
//! caller with longer windows has nothing to confirm.

use super::flock_guard::{FlockGuard, existing, options};
use super::{File, permission};
use fencelock_core::{
    ClearCompletion, Completion, CompletionRead, Fault, HolderId, Key, Mode, Unknown, WriteCompletion,
};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::{fs, io};

/// How much of an unreadable file is shown.
const SHOWN: usize = 60;

impl File {
    pub(super) fn read_completion(&self, key: &Key) -> Result<CompletionRead, Unknown> {
        let completion = self.stored(&self.directory.completion_file_of(key))?;
        Ok(CompletionRead::new(completion, self.clock.wall_micros()))
    }

    pub(super) fn write_completion(
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
        let path = self.directory.completion_file_of(key);
        let stored = self.stored(&path)?;
        let merged = match stored.clone() {
            Some(stored) => stored.merge(completion.clone(), self.clock.wall_micros()),
            None => completion.clone(),
        };
        if stored.as_ref() != Some(&merged) {
            replace(&path, &merged.to_wire()).map_err(|error| self.io_error("write", &path, &error))?;
        }
        Ok(WriteCompletion::Written)
    }

    /// Needs the lock, because a holder may replace the file at the same time.
    pub(super) fn clear_completion(&self, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
        let (lock, path) = (self.directory.file_of(key), self.directory.completion_file_of(key));
        let guard = FlockGuard::take(&lock).map_err(|error| self.io_error("lock", &lock, &error))?;
        let Some(_guard) = guard else {
            let detail = format!("{key} is locked: its completion can be cleared when the run has ended");
            return Err(Unknown::new(self.directory.name(), Fault::Busy, detail));
        };
        match self.stored(&path)? {
            None => return Ok(ClearCompletion::Absent),
            Some(stored) if stored.token > seen.token => return Ok(ClearCompletion::Changed),
            Some(_) => {}
        }
        let removed = fs::remove_file(&path).and_then(|()| flush_directory(&path));
        removed.map_err(|error| self.io_error("remove", &path, &error))?;
        Ok(ClearCompletion::Cleared)
    }

    fn stored(&self, path: &Path) -> Result<Option<Completion>, Unknown> {
        let Some(bytes) = first_bytes(path).map_err(|error| self.io_error("read", path, &error))? else {
            return Ok(None);
        };
        let text = str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
        match text.and_then(Completion::from_wire) {
            Some(completion) => Ok(Some(completion)),
            None => Err(self.unreadable(path, &bytes)),
        }
    }

    fn unreadable(&self, path: &Path, bytes: &[u8]) -> Unknown {
        let begins = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
        let detail = format!(
            "{} cannot be read by this version: {begins:?}; the work was not started and nothing was changed: use a later \
             version of fencelock, or remove the file if the work may run again",
            path.display()
        );
        Unknown::new(self.directory.name(), Fault::Unsupported, detail)
    }
}

/// One byte more than the longest completion with its line end, to detect a longer one.
fn first_bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = existing(options().read(true).open(path))? else { return Ok(None) };
    permission::check_plain(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(Completion::MAX_BYTES as u64 + 2).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

const IN_THE_WAY: [ErrorKind; 3] = [ErrorKind::PermissionDenied, ErrorKind::IsADirectory, ErrorKind::AlreadyExists];

/// The caller holds the lock, so no other process of fencelock writes.
///
/// In a directory of several users, the old file, or a new one that a killed process has left, may be that of another user, which
/// the sticky bit protects, and any user may have put a directory in the place of the new file. Then the old file is overwritten.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let line = format!("{text}\n");
    match rename_over(path, &line) {
        Err(error) if IN_THE_WAY.contains(&error.kind()) => overwrite(path, &line),
        replaced => replaced,
    }
}

fn rename_over(path: &Path, line: &str) -> io::Result<()> {
    let new = path.with_extension("once-new");
    // A process that was killed during a write has left the file.
    existing(fs::remove_file(&new))?;
    let mut file = permission::create(OpenOptions::new().write(true), &new)?;
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    flush_directory(path)
}

/// A power failure may leave a line that cannot be read, and then nothing runs.
fn overwrite(path: &Path, line: &str) -> io::Result<()> {
    let file = match existing(options().write(true).open(path))? {
        Some(file) => file,
        None => permission::create(options().write(true), path)?,
    };
    permission::check_only_name(path, &file)?;
    file.write_all_at(line.as_bytes(), 0)?;
    file.set_len(line.len() as u64)?;
    file.sync_all()?;
    flush_directory(path)
}

/// The name of a file is stored in its directory.
fn flush_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_crash_or_somebody_left_in_the_place_of_the_new_file_does_not_matter() {
        let scratch = Scratch::new();
        let (path, new) = (scratch.path().join("k.once"), scratch.path().join("k.once-new"));
        let written = || fs::read_to_string(&path).unwrap();
        fs::write(&new, "half a li").unwrap();
        replace(&path, "one").unwrap();
        assert!(written() == "one\n" && !new.exists());
        let target = scratch.path().join("target");
        fs::write(&target, "precious").unwrap();
        symlink(&target, &new).unwrap();
        replace(&path, "second").unwrap();
        assert!(written() == "second\n" && fs::read_to_string(&target).unwrap() == "precious");
        fs::create_dir(&new).unwrap();
        for text in ["third", "4"] {
            replace(&path, text).unwrap();
            assert_eq!(written(), format!("{text}\n"));
        }
        fs::remove_file(&path).unwrap();
        replace(&path, "first").unwrap();
        assert_eq!(written(), "first\n");
    }

    #[test]
    fn a_link_in_the_place_of_the_old_file_is_never_written_to() {
        let scratch = Scratch::new();
        let (path, target) = (scratch.path().join("k.once"), scratch.path().join("target"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &path).unwrap();
        fs::create_dir(scratch.path().join("k.once-new")).unwrap();
        assert!(replace(&path, "one").is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}
