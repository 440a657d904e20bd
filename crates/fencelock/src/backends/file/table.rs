//! The holds of this process.

use super::flock_guard::FlockGuard;
use super::record::Record;
use fencelock_core::{HolderId, Key};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A hold: the open, locked file, and its record.
#[derive(Debug)]
pub(super) struct HeldFile {
    pub(super) record: Record,
    pub(super) guard: FlockGuard,
}

/// At most one hold per key. The mutex is not held during file operations.
#[derive(Debug)]
pub(super) struct HoldTable(Mutex<HeldFiles>);

#[derive(Debug)]
struct HeldFiles {
    pid: u32,
    by_key: HashMap<Key, Arc<HeldFile>>,
}

impl HoldTable {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HeldFiles { pid: std::process::id(), by_key: HashMap::new() }))
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<HeldFile>> {
        self.holds().by_key.get(key).cloned()
    }

    pub(super) fn insert(&self, hold: HeldFile) {
        let key = hold.record.key.clone();
        let before = self.holds().by_key.insert(key, Arc::new(hold));
        // Its file was replaced, or the kernel would have refused the lock; it is closed outside of the mutex.
        drop(before);
    }

    /// Removes the hold, if it still belongs to this holder.
    pub(super) fn remove(&self, key: &Key, holder: &HolderId) -> Option<Arc<HeldFile>> {
        let mut holds = self.holds();
        if holds.by_key.get(key).is_some_and(|hold| hold.record.holder.id == *holder) {
            return holds.by_key.remove(key);
        }
        None
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
