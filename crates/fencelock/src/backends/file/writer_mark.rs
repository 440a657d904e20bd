//! The mark of a waiting writer, in the file `<key>.lock.row`: it prevents new holders from entering a row, so that the row
//! becomes empty.

use super::flock_guard::{first_bytes, options};
use super::name::row_path;
use super::permission;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A waiting writer polls at least every 250 ms, and each time extends its mark by this time.
///
/// The mark need not be removed: it expires if a writer gives up or crashes. A clock that is set forward ends it early, and so
/// does a clock that is set back.
const LIFE_MICROS: u64 = 500_000;

/// Marks that a writer waits, at `wall` microseconds; 0 removes the mark.
pub(super) fn set(lock_file: &Path, wall: u64) -> io::Result<()> {
    // The file exists: the writer waits for a row, and each claim of a row creates the file.
    let file = options().write(true).open(row_path(lock_file))?;
    permission::check_plain(&file.metadata()?)?;
    file.write_all_at(format!("{wall:020}\n").as_bytes(), 0)
}

/// Whether a writer waits.
pub(super) fn is_set(lock_file: &Path, wall: u64) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let file = options().read(true).open(row_path(lock_file))?;
        permission::check_plain(&file.metadata()?)?;
        first_bytes(&file)
    };
    // An unreadable mark has no effect.
    let bytes = read().unwrap_or_default();
    let since = str::from_utf8(&bytes).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
    since.is_some_and(|since| wall.checked_sub(since).is_some_and(|age| age < LIFE_MICROS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::flock_guard::FlockGuard;
    use crate::backends::file::scratch::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_mark_ends_by_itself_and_is_removed_by_0() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        drop(FlockGuard::take(&row_path(&path)).unwrap());
        assert!(!is_set(&path, 1_000_000), "a new file has no mark");
        set(&path, 1_000_000).unwrap();
        assert!(is_set(&path, 1_000_000) && is_set(&path, 1_499_999));
        assert!(!is_set(&path, 1_500_000) && !is_set(&path, 999_999));
        set(&path, 0).unwrap();
        assert!(!is_set(&path, 1_000_000));
    }

    #[test]
    fn a_link_in_its_place_is_neither_read_nor_written() {
        let scratch = Scratch::new();
        let (path, target) = (scratch.path().join("a.lock"), scratch.path().join("target"));
        std::fs::write(&target, "00000000000001000000").unwrap();
        symlink(&target, row_path(&path)).unwrap();
        assert!(!is_set(&path, 1_000_000));
        assert!(set(&path, 2_000_000).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "00000000000001000000");
    }
}
