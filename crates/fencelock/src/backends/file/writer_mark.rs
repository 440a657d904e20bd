//! The mark of a waiting writer, in the file `<key>.lock.writer`: it prevents new holders from entering a row, so that the row
//! becomes empty, and from beginning the next row before the writer had its turn.
//!
//! The file contains two times: since when writers have waited for this row, and when one of them tried last. Each waiting writer has a
//! shared `flock` on it. So a mark has no effect if its writers have ended (no lock), or are stopped or have given up (an old time).

use super::directory::writer_path;
use super::flock_guard::{FlockGuard, first_bytes, options};
use super::{flock_guard, permission};
use fencelock_core::{Key, lock};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::{fs, io};

/// A waiting writer polls at least every 250 ms, and each time extends its mark by this time.
///
/// A clock that is set forward ends the mark early, and so does a clock that is set back.
const LIFE_MICROS: u64 = 500_000;

/// For this time after a writer has found a row, readers still enter it: those that waited for the last writer come in together,
/// also those that only poll. Otherwise a second writer would let in the fastest of them only.
const ENTRY_MICROS: u64 = 250_000;

/// The marks of this process, one for each key.
#[derive(Debug, Default)]
pub(super) struct WriterMarks(Mutex<HashMap<Key, Mark>>);

#[derive(Debug)]
struct Mark {
    guard: FlockGuard,
    last: u64,
}

impl WriterMarks {
    /// Marks that a writer waits for a row, at `wall` microseconds.
    pub(super) fn set(&self, key: &Key, lock_file: &Path, wall: u64) -> io::Result<()> {
        let mut marks = lock(&self.0);
        // A mark whose file was deleted is invisible.
        let is_usable = |mark: &Mark| mark.guard.is_in_place().unwrap_or(false);
        if !marks.get(key).is_some_and(is_usable) {
            // A reader that looks at the mark may refuse it for a moment; the next poll sets it.
            let Some(guard) = FlockGuard::share(&writer_path(lock_file))? else { return Ok(()) };
            guard.share_permissions_with(&fs::symlink_metadata(lock_file)?)?;
            marks.insert(key.clone(), Mark { guard, last: wall });
        }
        let Some(mark) = marks.get_mut(key) else { return Ok(()) };
        mark.last = wall;
        let since = times(&first_bytes(&mark.guard.file)?)
            .filter(|(_, last)| is_fresh(*last, wall))
            .map_or(wall, |(since, _)| since);
        mark.guard.file.write_all_at(text(since, wall).as_bytes(), 0)
    }

    /// Removes the mark of this process, and those of other keys whose writers have given up.
    pub(super) fn remove(&self, key: &Key, wall: u64) {
        lock(&self.0).retain(|marked, mark| marked != key && is_fresh(mark.last, wall));
    }
}

/// A writer has its turn: the others wait for the next row, which admits readers first.
pub(super) fn begin_turn(lock_file: &Path) -> io::Result<()> {
    let path = writer_path(lock_file);
    let file = options().write(true).open(&path)?;
    permission::check_only_name(&path, &file)?;
    file.write_all_at(text(0, 0).as_bytes(), 0)
}

/// Whether a writer waits for the next turn.
pub(super) fn is_set(lock_file: &Path, wall: u64) -> bool {
    waits(lock_file, wall, 0)
}

/// Whether new holders must not enter the row.
pub(super) fn closes_row(lock_file: &Path, wall: u64) -> bool {
    waits(lock_file, wall, ENTRY_MICROS)
}

fn waits(lock_file: &Path, wall: u64, least: u64) -> bool {
    let is_marked = || -> io::Result<bool> {
        let file = options().read(true).open(writer_path(lock_file))?;
        permission::check_plain(&file.metadata()?)?;
        let marked = times(&first_bytes(&file)?)
            .is_some_and(|(since, last)| is_fresh(last, wall) && wall.saturating_sub(since) >= least);
        // Closing the file unlocks it.
        Ok(marked && !flock_guard::try_exclusive(&file)?)
    };
    // An unreadable mark has no effect.
    is_marked().unwrap_or(false)
}

fn is_fresh(last: u64, wall: u64) -> bool {
    wall.checked_sub(last).is_some_and(|age| age < LIFE_MICROS)
}

/// Always of the same length.
fn text(since: u64, last: u64) -> String {
    format!("{since:020} {last:020}\n")
}

fn times(bytes: &[u8]) -> Option<(u64, u64)> {
    let (since, last) = str::from_utf8(bytes).ok()?.trim_end().split_once(' ')?;
    Some((since.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn lock_file(scratch: &Scratch) -> PathBuf {
        let path = scratch.path().join("a.lock");
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn a_mark_ends_with_its_time_and_with_its_writer() {
        let scratch = Scratch::new();
        let (path, key, marks) = (lock_file(&scratch), Key::new("a").unwrap(), WriterMarks::default());
        marks.set(&key, &path, 1_000_000).unwrap();
        assert!(is_set(&path, 1_499_999) && !is_set(&path, 1_500_000) && !is_set(&path, 999_999));
        let others = WriterMarks::default();
        others.set(&key, &path, 1_100_000).unwrap();
        drop(marks);
        assert!(is_set(&path, 1_100_000), "another writer waits");
        drop(others);
        assert!(!is_set(&path, 1_100_000), "as if its process had been killed");
    }

    #[test]
    fn marks_that_were_given_up_are_closed() {
        let scratch = Scratch::new();
        let (path, key, marks) = (lock_file(&scratch), Key::new("a").unwrap(), WriterMarks::default());
        marks.set(&key, &path, 1_000_000).unwrap();
        marks.remove(&Key::new("b").unwrap(), 1_499_999);
        assert_eq!(lock(&marks.0).len(), 1);
        marks.remove(&Key::new("b").unwrap(), 1_500_000);
        assert_eq!(lock(&marks.0).len(), 0);
    }

    #[test]
    fn a_link_in_its_place_is_neither_read_nor_written() {
        let scratch = Scratch::new();
        let (path, target) = (lock_file(&scratch), scratch.path().join("target"));
        fs::write(&target, text(1_000_000, 1_000_000)).unwrap();
        symlink(&target, writer_path(&path)).unwrap();
        assert!(!is_set(&path, 1_000_000));
        assert!(WriterMarks::default().set(&Key::new("a").unwrap(), &path, 2_000_000).is_err());
        assert!(begin_turn(&path).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), text(1_000_000, 1_000_000));
    }
}
