//! The holds of this process.

use super::flock_guard::FlockGuard;
use super::record::Record;
use fencelock_core::{HolderId, Key};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A hold: the locked files, and the record.
#[derive(Debug)]
pub(super) struct HeldFile {
    pub(super) record: Record,
    /// The lock on the lock file. A downgrade converts it, so both holds have it for a moment.
    pub(super) lock: Arc<FlockGuard>,
    /// The lock on a slot file, in a row.
    pub(super) slot: Option<FlockGuard>,
}

impl HeldFile {
    /// Whether the paths still refer to the locked files. Otherwise the next process locks other files.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        Ok(self.lock.is_in_place()? && self.slot.as_ref().map_or(Ok(true), FlockGuard::is_in_place)?)
    }

    /// Copies of its open files, which have its locks too.
    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        self.files().map(FlockGuard::descriptor).collect()
    }

    /// Keeps its files young, for programs that delete old files.
    pub(super) fn refresh(&self) -> io::Result<()> {
        self.files().try_for_each(FlockGuard::refresh)
    }

    fn files(&self) -> impl Iterator<Item = &FlockGuard> {
        [Some(&*self.lock), self.slot.as_ref()].into_iter().flatten()
    }

    /// Records the release, and releases: the slot first, because the close of the lock file wakes the waiters. The kernel
    /// locks decide, not the record: they are released even if it cannot be written, and then `unwritten` gets the error.
    pub(super) fn unlock(&self, unwritten: impl FnOnce(io::Error)) -> io::Result<()> {
        let recorded = self.slot.as_ref().unwrap_or(&self.lock);
        if let Err(error) = recorded.write(&self.record.freed()) {
            unwritten(error);
        }
        let slot = self.slot.as_ref().map_or(Ok(()), FlockGuard::unlock);
        self.lock.unlock()?;
        slot
    }
}

/// The holds by key: usually one each. The mutex is not held during file operations.
#[derive(Debug)]
pub(super) struct HoldTable(Mutex<HeldFiles>);

#[derive(Debug)]
struct HeldFiles {
    pid: u32,
    by_key: HashMap<Key, Vec<Arc<HeldFile>>>,
}

impl HoldTable {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HeldFiles { pid: std::process::id(), by_key: HashMap::new() }))
    }

    pub(super) fn get(&self, key: &Key, holder: &HolderId) -> Option<Arc<HeldFile>> {
        self.holds().by_key.get(key)?.iter().find(|hold| hold.record.holder.id == *holder).cloned()
    }

    pub(super) fn insert(&self, hold: HeldFile) {
        let key = hold.record.key.clone();
        self.holds().by_key.entry(key).or_default().push(Arc::new(hold));
    }

    /// Replaces the hold of the same holder, and returns the one before; `None` if it has been removed, and then `hold` is
    /// unlocked.
    pub(super) fn replace(&self, hold: HeldFile) -> Option<Arc<HeldFile>> {
        let hold = Arc::new(hold);
        let mut holds = self.holds();
        let mut of_key = holds.by_key.get_mut(&hold.record.key)?.iter_mut();
        let found = of_key.find(|before| before.record.holder.id == hold.record.holder.id)?;
        Some(std::mem::replace(found, hold.clone()))
    }

    /// Removes the hold of this holder.
    pub(super) fn remove(&self, key: &Key, holder: &HolderId) -> Option<Arc<HeldFile>> {
        let mut holds = self.holds();
        let of_key = holds.by_key.get_mut(key)?;
        let index = of_key.iter().position(|hold| hold.record.holder.id == *holder)?;
        let hold = of_key.swap_remove(index);
        if of_key.is_empty() {
            holds.by_key.remove(key);
        }
        Some(hold)
    }

    /// A forked child starts with an empty table: the locks belong to its parent, and the child closes its copies of the files.
    fn holds(&self) -> MutexGuard<'_, HeldFiles> {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        if holds.pid != pid {
            *holds = HeldFiles { pid, by_key: HashMap::new() };
        }
        holds
    }
}
