use super::Driver;
use super::key_cell::KeyCell;
use crate::closing::Closing;
use fencelock_core::Key;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys that a client waits for or holds.
#[derive(Debug)]
pub(crate) struct Keys {
    cells: Mutex<HashMap<Key, Arc<KeyCell>>>,
    closing: Arc<Closing>,
}

impl Keys {
    pub(super) fn new(closing: Arc<Closing>) -> Self {
        Self { cells: Mutex::default(), closing }
    }

    /// Whether no task waits or holds.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells().is_empty()
    }

    pub(super) fn all(&self) -> Vec<Arc<KeyCell>> {
        self.cells().values().cloned().collect()
    }

    /// The cell of a key, if a task of this client waits for it or holds it.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<KeyCell>> {
        self.cells().get(key).cloned()
    }

    /// The cell of a key. It may be forgotten before it is used: [`KeyCell::try_with`].
    pub(super) fn get_or_insert(&self, key: &Key, driver: &Arc<Driver>) -> Arc<KeyCell> {
        let mut cells = self.cells();
        if let Some(cell) = cells.get(key) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(KeyCell::new(key.clone(), Arc::clone(driver)));
        cells.insert(key.clone(), Arc::clone(&cell));
        cell
    }

    /// Removes a key that no task waits for or holds.
    pub(super) fn forget(&self, cell: &KeyCell) {
        let mut cells = self.cells();
        if cells.get(cell.key()).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), cell)) {
            cells.remove(cell.key());
        }
        drop(cells);
        self.closing.emptied();
    }

    fn cells(&self) -> MutexGuard<'_, HashMap<Key, Arc<KeyCell>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
