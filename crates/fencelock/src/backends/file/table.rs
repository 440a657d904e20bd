//! The holds of this process.

use super::flock_guard::FlockGuard;
use super::record::Record;
use crate::identity::Process;
use fencelock_core::{HolderId, Key, lock};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

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

    fn id(&self) -> (Key, HolderId) {
        (self.record.key.clone(), self.record.holder.id)
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

/// The holds of this process. The mutex is not held during file operations.
#[derive(Debug)]
pub(super) struct HoldTable(Mutex<(Process, HeldFiles)>);

type HeldFiles = HashMap<(Key, HolderId), Arc<HeldFile>>;

impl HoldTable {
    pub(super) fn new() -> Self {
        Self(Mutex::new((Process::current(), HeldFiles::new())))
    }

    pub(super) fn get(&self, key: &Key, holder: &HolderId) -> Option<Arc<HeldFile>> {
        self.with(|holds| holds.get(&(key.clone(), *holder)).cloned())
    }

    pub(super) fn insert(&self, hold: HeldFile) {
        self.with(|holds| holds.insert(hold.id(), Arc::new(hold)));
    }

    /// Replaces the hold of this holder. Returns whether it was still there.
    pub(super) fn replace(&self, hold: HeldFile) -> bool {
        let hold = Arc::new(hold);
        let before = self.with(|holds| holds.get_mut(&hold.id()).map(|found| std::mem::replace(found, hold.clone())));
        before.is_some()
    }

    /// Removes the hold of this holder.
    pub(super) fn remove(&self, key: &Key, holder: &HolderId) -> Option<Arc<HeldFile>> {
        self.with(|holds| holds.remove(&(key.clone(), *holder)))
    }

    /// A forked child starts with an empty table: the locks belong to its parent, and the child closes its copies of the files.
    fn with<T>(&self, call: impl FnOnce(&mut HeldFiles) -> T) -> T {
        let (process, holds) = &mut *lock(&self.0);
        if !process.is_current() {
            (*process, *holds) = (Process::current(), HeldFiles::new());
        }
        call(holds)
    }
}
