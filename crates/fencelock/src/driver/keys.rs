use super::Driver;
use super::key_cell::KeyCell;
use fencelock_core::engine::KeyMap;
use fencelock_core::{Key, Mode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys that a client waits for or holds.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    cells: Mutex<KeyMap<Arc<KeyCell>>>,
}

impl Keys {
    /// Whether no task waits for a key or holds one.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells().is_empty()
    }

    pub(super) fn all(&self) -> Vec<Arc<KeyCell>> {
        let mut all: Vec<_> = self.cells().all().cloned().collect();
        all.sort_unstable();
        all
    }

    /// All cells of a key. Most have one, for which nothing is allocated.
    pub(crate) fn of_key(&self, key: &Key) -> impl Iterator<Item = Arc<KeyCell>> + use<> {
        let cells = self.cells();
        let mut all = cells.of_key(key).cloned();
        let first = all.next();
        first.into_iter().chain(all.collect::<Vec<_>>())
    }

    /// The cell of a key. It may be removed before it is used: [`KeyCell::try_with`].
    pub(super) fn get_or_insert(&self, key: &Key, mode: Mode, driver: &Arc<Driver>) -> Arc<KeyCell> {
        let new = || Arc::new(KeyCell::new(key.clone(), mode, Arc::clone(driver)));
        Arc::clone(self.cells().get_or_insert(key, mode, new))
    }

    /// Removes a key that no task waits for or holds.
    pub(super) fn forget(&self, cell: &KeyCell) {
        self.cells().remove_if(&cell.key, cell.mode, |known| **known == *cell);
    }

    fn cells(&self) -> MutexGuard<'_, KeyMap<Arc<KeyCell>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
