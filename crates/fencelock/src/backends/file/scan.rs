//! Lists the holders of all keys.

use super::File;
use super::directory::Directory;
use super::inspect::LockState;
use super::name::{SUFFIX, file_name, key_of};
use super::record::Record;
use fencelock_core::{Holding, Unknown};
use std::{fs, io};

/// The number of unreadable files that are named in the log; other users of the directory may create more.
const NAMED: usize = 5;

/// The number of files that a list inspects before it lets other tasks run: usually less than a millisecond.
const STRETCH: usize = 16;

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: usize,
    pub(super) held: Vec<Holding>,
    /// The number of unreadable files, and the reasons for the first of them.
    pub(super) skipped: usize,
    pub(super) reasons: Vec<Unknown>,
}

impl Scan {
    /// The number of lock files, and the held ones. A foreign lock on a file with an unknown key is omitted, because it has no
    /// name. An unreadable file, such as a symbolic link, is skipped.
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
                self.skip(unknown);
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

    fn skip(&mut self, why: Unknown) {
        self.skipped += 1;
        if self.reasons.len() < NAMED {
            self.reasons.push(why);
        }
    }

    /// The holds; a warning reports skipped files.
    pub(super) fn into_held(self) -> Vec<Holding> {
        for why in &self.reasons {
            tracing::warn!("skipped: {why}");
        }
        if self.skipped > self.reasons.len() {
            tracing::warn!("skipped: {} more lock files", self.skipped - self.reasons.len());
        }
        self.held
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
