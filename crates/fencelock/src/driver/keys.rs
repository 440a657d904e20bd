use super::Driver;
use super::key_cell::KeyCell;
use crate::closing::Closing;
use fencelock_core::{Key, Mode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys that a client waits for or holds.
///
/// The tasks that read a key have a separate cell, because they share leases at the same time and not one after another. The
/// tasks that request the same permits also have a separate cell, because they share several leases.
#[derive(Debug)]
pub(crate) struct Keys {
    cells: Mutex<Cells>,
    closing: Arc<Closing>,
}

#[derive(Debug, Default)]
struct Cells {
    writers: HashMap<Key, Arc<KeyCell>>,
    readers: HashMap<Key, Arc<KeyCell>>,
    permits: HashMap<Key, HashMap<Mode, Arc<KeyCell>>>,
}

impl Cells {
    fn get(&self, key: &Key, mode: Mode) -> Option<&Arc<KeyCell>> {
        match mode {
            Mode::Shared => self.readers.get(key),
            Mode::Permits { .. } => self.permits.get(key)?.get(&mode),
            _ => self.writers.get(key),
        }
    }

    fn insert(&mut self, cell: Arc<KeyCell>) {
        let (key, mode) = (cell.key().clone(), cell.mode());
        match mode {
            Mode::Shared => _ = self.readers.insert(key, cell),
            Mode::Permits { .. } => _ = self.permits.entry(key).or_default().insert(mode, cell),
            _ => _ = self.writers.insert(key, cell),
        }
    }

    fn remove(&mut self, key: &Key, mode: Mode) {
        match mode {
            Mode::Shared => _ = self.readers.remove(key),
            Mode::Permits { .. } => {
                if let Some(cells) = self.permits.get_mut(key) {
                    cells.remove(&mode);
                    if cells.is_empty() {
                        self.permits.remove(key);
                    }
                }
            }
            _ => _ = self.writers.remove(key),
        }
    }
}

impl Keys {
    pub(super) fn new(closing: Arc<Closing>) -> Self {
        Self { cells: Mutex::default(), closing }
    }

    /// Whether no task waits for a key or holds one.
    pub(crate) fn is_empty(&self) -> bool {
        let cells = self.cells();
        cells.writers.is_empty() && cells.readers.is_empty() && cells.permits.is_empty()
    }

    pub(super) fn all(&self) -> Vec<Arc<KeyCell>> {
        let cells = self.cells();
        let all = cells
            .writers
            .values()
            .chain(cells.readers.values())
            .chain(cells.permits.values().flat_map(HashMap::values));
        all.cloned().collect()
    }

    /// All cells of a key.
    pub(crate) fn of_key(&self, key: &Key) -> impl Iterator<Item = Arc<KeyCell>> + use<> {
        let cells = self.cells();
        let both = [cells.writers.get(key).cloned(), cells.readers.get(key).cloned()];
        let permits: Vec<_> = cells.permits.get(key).into_iter().flat_map(HashMap::values).cloned().collect();
        both.into_iter().flatten().chain(permits)
    }

    /// The cell of a key. It may be removed before it is used: [`KeyCell::try_with`].
    pub(super) fn get_or_insert(&self, key: &Key, mode: Mode, driver: &Arc<Driver>) -> Arc<KeyCell> {
        let mut cells = self.cells();
        if let Some(cell) = cells.get(key, mode) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(KeyCell::new(key.clone(), mode, Arc::clone(driver)));
        cells.insert(Arc::clone(&cell));
        cell
    }

    /// Removes a key that no task waits for or holds.
    pub(super) fn forget(&self, cell: &KeyCell) {
        let mut cells = self.cells();
        if cells.get(cell.key(), cell.mode()).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), cell)) {
            cells.remove(cell.key(), cell.mode());
        }
        drop(cells);
        self.closing.emptied();
    }

    fn cells(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
