//! Lists the holders of all keys.

use super::File;
use super::inspect::LockState;
use super::name::{SUFFIX, file_name, key_of};
use super::record::Record;
use fencelock_core::{Eviction, Expiry, Foreign, HolderInfo, Holding, Key, Occupant, Unknown};
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
    /// The held keys, and those of which it is unknown.
    fn into_listed(self) -> Vec<Holding> {
        let unread = self.unread.into_iter().map(|(key, why)| {
            let by = Occupant::Foreign(Foreign::unread(why.to_string()));
            Holding::new(key, HolderInfo::new(by, Expiry::Never))
        });
        let listed = self.held.into_iter().chain(unread).collect();
        if self.more_unread > 0 {
            tracing::warn!("{} lock files cannot be read and are not listed", self.more_unread);
        }
        listed
    }
}

impl File {
    pub(super) fn holding(&self, key: &Key, seen: LockState) -> Option<Holding> {
        match seen {
            LockState::Free => None,
            LockState::Held(holds) => holds.holding(key, self.clock.wall_micros()),
            LockState::Foreign(by) => Some(Holding::new(key.clone(), HolderInfo::new(by, Expiry::Never))),
        }
    }

    /// The held keys. Other tasks, such as one that waits for a signal, run during the scan of a large directory.
    pub(super) async fn list_held(&self) -> Result<Vec<Holding>, Unknown> {
        let mut scan = Scan::default();
        for (index, entry) in self.entries()?.enumerate() {
            self.scan_entry(entry, &mut scan)?;
            if index % STRETCH == STRETCH - 1 {
                // It needs no runtime.
                tokio::task::yield_now().await;
            }
        }
        Ok(scan.into_listed())
    }

    /// The number of lock files, the held ones, and those that cannot be read, such as symbolic links. A foreign lock on a file with an
    /// unknown key is omitted, because it has no name.
    pub(super) fn scan(&self) -> Result<Scan, Unknown> {
        let mut scan = Scan::default();
        for entry in self.entries()? {
            self.scan_entry(entry, &mut scan)?;
        }
        Ok(scan)
    }

    /// None if the directory is missing.
    fn entries(&self) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>> + use<>, Unknown> {
        if self.directory.is_missing() {
            tracing::debug!(directory = %self.directory.name(), "does not exist: there are no locks yet");
            return Ok(None.into_iter().flatten());
        }
        let entries = fs::read_dir(self.directory.path()).map_err(|error| self.unlisted(&error))?;
        Ok(Some(entries).into_iter().flatten())
    }

    fn unlisted(&self, error: &io::Error) -> Unknown {
        self.directory.unknown("cannot list this directory", error)
    }

    fn scan_entry(&self, entry: io::Result<fs::DirEntry>, scan: &mut Scan) -> Result<(), Unknown> {
        let name = entry.map_err(|error| self.unlisted(&error))?.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) else { return Ok(()) };
        scan.files += 1;
        let belongs = |record: &Record| file_name(&record.key) == name;
        let seen = match self.inspect_file(&self.directory.path().join(name), belongs) {
            Ok(seen) => seen,
            Err(unknown) => {
                match key_of(name).filter(|_| scan.unread.len() < NAMED) {
                    Some(key) => scan.unread.push((key, unknown)),
                    None => scan.more_unread += 1,
                }
                return Ok(());
            }
        };
        // The name of a long key is only in the records.
        let key = match &seen {
            LockState::Held(holds) => holds.iter().next().map(|record| record.key.clone()),
            _ => key_of(name),
        };
        scan.held.extend(key.and_then(|key| self.holding(&key, seen)));
        Ok(())
    }

    pub(super) fn refuse(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let now = self.inspect_key(&seen.key)?;
        let text = match &now {
            LockState::Held(holds) if holds.iter().any(|record| seen.has(record.holder.id)) => {
                let listed = holds.iter().filter(|record| seen.has(record.holder.id));
                let mut pids: Vec<_> = listed.map(|record| record.pid.to_string()).collect();
                // One process may have several holds.
                pids.dedup();
                match &pids[..] {
                    [pid] => format!("the kernel holds this lock for process {pid}; end that process to free it"),
                    pids => {
                        let pids = pids.join(", ");
                        format!("the kernel holds this lock for processes {pids}; end those processes to free it")
                    }
                }
            }
            LockState::Foreign(occupant) if seen.first().holder_id().is_none() => {
                format!("the kernel holds this lock for {occupant}; end that program to free it")
            }
            _ => return Ok(Eviction::Changed(self.holding(&seen.key, now).map(Box::new))),
        };
        Ok(Eviction::Refused(text))
    }
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
        let scan = locks.scan().unwrap();
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
        let (mut list, mut waits) = (pin!(locks.list_held()), 0);
        while list.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            waits += 1;
        }
        assert!(waits >= 3, "{waits}");
    }
}
