//! Lists the holders of all keys.

use super::File;
use super::directory::Directory;
use super::inspect::LockState;
use super::name::{SUFFIX, file_name, key_of};
use super::record::Record;
use fencelock_core::{Holding, Key, Unknown};
use std::{fs, io};

/// The number of keys that are listed although their files cannot be read; other users of the directory may create more.
const NAMED: usize = 16;

/// The number of files that a list inspects before it lets other tasks run: usually less than a millisecond.
const STRETCH: usize = 16;

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: usize,
    pub(super) held: Vec<Holding>,
    /// Why files cannot be read, with their keys, and how many more there are, with those of long keys, which the name does not contain.
    pub(super) unread: Vec<(Key, Unknown)>,
    pub(super) more_unread: usize,
}

impl Scan {
    /// The number of lock files, and the held ones. A foreign lock on a file with an unknown key is omitted, because it has no
    /// name. Files that cannot be read, such as symbolic links, are counted.
    pub(super) fn at_once(file: &File) -> Result<Self, Unknown> {
        let mut scan = Self::default();
        for entry in entries(&file.directory)? {
            scan.add(file, entry)?;
        }
        Ok(scan)
    }

    /// The same. Other tasks, such as one that waits for a signal, run during the scan of a large directory.
    pub(super) async fn in_steps(file: &File) -> Result<Self, Unknown> {
        let mut scan = Self::default();
        for (index, entry) in entries(&file.directory)?.enumerate() {
            scan.add(file, entry)?;
            if index % STRETCH == STRETCH - 1 {
                // It needs no runtime.
                tokio::task::yield_now().await;
            }
        }
        Ok(scan)
    }

    fn add(&mut self, file: &File, entry: io::Result<fs::DirEntry>) -> Result<(), Unknown> {
        let name = entry.map_err(|error| unlisted(&file.directory, &error))?.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) else { return Ok(()) };
        self.files += 1;
        let belongs = |record: &Record| file_name(&record.key) == name;
        let seen = match LockState::of(file, &file.directory.path().join(name), belongs) {
            Ok(seen) => seen,
            Err(unknown) => {
                match key_of(name).filter(|_| self.unread.len() < NAMED) {
                    Some(key) => self.unread.push((key, unknown)),
                    None => self.more_unread += 1,
                }
                return Ok(());
            }
        };
        // The name of a long key is only in the records.
        let key = match &seen {
            LockState::Held(holds) => holds.iter().next().map(|record| record.key.clone()),
            _ => key_of(name),
        };
        self.held.extend(key.and_then(|key| seen.holding(&key, file.clock.wall_micros())));
        Ok(())
    }

    /// The held keys, and those of which it is unknown.
    pub(super) fn into_listed(self) -> Vec<Holding> {
        let unread = self.unread.into_iter().map(|(key, why)| Holding::unread(key, &why));
        let listed = self.held.into_iter().chain(unread).collect();
        if self.more_unread > 0 {
            tracing::warn!("{} lock files cannot be read and are not listed", self.more_unread);
        }
        listed
    }
}

/// None if the directory is missing.
fn entries(directory: &Directory) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>> + use<>, Unknown> {
    if directory.is_missing() {
        tracing::debug!(directory = %directory.name(), "does not exist: there are no locks yet");
        return Ok(None.into_iter().flatten());
    }
    let entries = fs::read_dir(directory.path()).map_err(|error| unlisted(directory, &error))?;
    Ok(Some(entries).into_iter().flatten())
}

fn unlisted(directory: &Directory, error: &io::Error) -> Unknown {
    directory.unknown("cannot list this directory", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn very_many_files_that_cannot_be_read_are_counted() {
        let scratch = Scratch::new();
        let locks = File::open(scratch.path()).unwrap();
        for number in 0..NAMED * 2 {
            fs::create_dir(scratch.path().join(format!("{number}.lock"))).unwrap();
        }
        let scan = Scan::at_once(&locks).unwrap();
        assert_eq!((scan.files, scan.unread.len(), scan.more_unread), (NAMED * 2, NAMED, NAMED));
        assert_eq!(scan.into_listed().len(), NAMED);
    }

    #[test]
    fn a_list_of_many_files_lets_other_tasks_run() {
        let scratch = Scratch::new();
        let locks = File::open(scratch.path()).unwrap();
        for number in 0..STRETCH * 3 {
            fs::write(scratch.path().join(format!("{number}.lock")), "").unwrap();
        }
        let (mut list, mut waits) = (pin!(Scan::in_steps(&locks)), 0);
        while list.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            waits += 1;
        }
        assert!(waits >= 3, "{waits}");
    }
}
