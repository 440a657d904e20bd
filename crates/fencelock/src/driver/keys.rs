use super::Driver;
use super::key_cell::KeyCell;
use crate::closing::Closing;
use fencelock_core::{Key, Mode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys that a client waits for or holds.
///
/// The tasks that read a key have a cell of their own, because they share leases at the same time and not one after another.
#[derive(Debug)]
pub(crate) struct Keys {
    cells: Mutex<Cells>,
    closing: Arc<Closing>,
}

#[derive(Debug, Default)]
struct Cells {
    writers: HashMap<Key, Arc<KeyCell>>,
    readers: HashMap<Key, Arc<KeyCell>>,
}

impl Cells {
    const fn of(&mut self, reads: bool) -> &mut HashMap<Key, Arc<KeyCell>> {
        if reads { &mut self.readers } else { &mut self.writers }
    }
}

impl Keys {
    pub(super) fn new(closing: Arc<Closing>) -> Self {
        Self { cells: Mutex::default(), closing }
    }

    /// Whether no task waits or holds.
    pub(crate) fn is_empty(&self) -> bool {
        let cells = self.cells();
        cells.writers.is_empty() && cells.readers.is_empty()
    }

    pub(super) fn all(&self) -> Vec<Arc<KeyCell>> {
        let cells = self.cells();
        cells.writers.values().chain(cells.readers.values()).cloned().collect()
    }

    /// The cell of a key for tasks that ask for this mode, if one of them waits for it or holds it.
    pub(super) fn get(&self, key: &Key, mode: Mode) -> Option<Arc<KeyCell>> {
        self.cells().of(mode == Mode::Shared).get(key).cloned()
    }

    /// All cells of a key.
    pub(crate) fn of_key(&self, key: &Key) -> impl Iterator<Item = Arc<KeyCell>> + use<> {
        let cells = self.cells();
        let both = [cells.writers.get(key).cloned(), cells.readers.get(key).cloned()];
        both.into_iter().flatten()
    }

    /// The cell of a key. It may be forgotten before it is used: [`KeyCell::try_with`].
    pub(super) fn get_or_insert(&self, key: &Key, mode: Mode, driver: &Arc<Driver>) -> Arc<KeyCell> {
        let reads = mode == Mode::Shared;
        let mut cells = self.cells();
        let cells = cells.of(reads);
        if let Some(cell) = cells.get(key) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(KeyCell::new(key.clone(), reads, Arc::clone(driver)));
        cells.insert(key.clone(), Arc::clone(&cell));
        cell
    }

    /// Removes a key that no task waits for or holds.
    pub(super) fn forget(&self, cell: &KeyCell) {
        let mut all = self.cells();
        let cells = all.of(cell.reads());
        if cells.get(cell.key()).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), cell)) {
            cells.remove(cell.key());
        }
        drop(all);
        self.closing.emptied();
    }

    fn cells(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
