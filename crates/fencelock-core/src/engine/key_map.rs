use crate::{Key, Mode};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What a client has for its keys: `C` is an engine of a key, as its driver keeps it.
///
/// The tasks that read a key have a separate engine, because they share leases at the same time and not one after another. The tasks
/// that request the same permits also have a separate engine, because they share several leases.
#[derive(Debug, Clone)]
pub struct KeyMap<C> {
    writers: HashMap<Key, C>,
    readers: HashMap<Key, C>,
    permits: HashMap<Key, HashMap<Mode, C>>,
}

impl<C> Default for KeyMap<C> {
    fn default() -> Self {
        Self { writers: HashMap::new(), readers: HashMap::new(), permits: HashMap::new() }
    }
}

impl<C> KeyMap<C> {
    /// Whether no task waits for a key or holds one.
    pub fn is_empty(&self) -> bool {
        self.writers.is_empty() && self.readers.is_empty() && self.permits.is_empty()
    }

    /// All engines.
    pub fn all(&self) -> impl Iterator<Item = &C> {
        let alone = self.writers.values().chain(self.readers.values());
        alone.chain(self.permits.values().flat_map(HashMap::values))
    }

    /// All engines of a key: the events of the backend are for each of them.
    pub fn of_key(&self, key: &Key) -> impl Iterator<Item = &C> {
        let alone = self.writers.get(key).into_iter().chain(self.readers.get(key));
        alone.chain(self.permits.get(key).into_iter().flat_map(HashMap::values))
    }

    /// The engine for tasks that request this mode; a new one if there is none.
    pub fn get_or_insert(&mut self, key: &Key, mode: Mode, new: impl FnOnce() -> C) -> &C {
        match mode {
            Mode::Shared => self.readers.entry(key.clone()).or_insert_with(new),
            Mode::Permits { .. } => self.permits.entry(key.clone()).or_default().entry(mode).or_insert_with(new),
            _ => self.writers.entry(key.clone()).or_insert_with(new),
        }
    }

    /// Removes an engine that is empty, unless another one has taken its place.
    pub fn remove_if(&mut self, key: &Key, mode: Mode, is_it: impl FnOnce(&C) -> bool) {
        match mode {
            Mode::Shared => remove_if(self.readers.entry(key.clone()), is_it),
            Mode::Permits { .. } => {
                if let Entry::Occupied(mut cells) = self.permits.entry(key.clone()) {
                    remove_if(cells.get_mut().entry(mode), is_it);
                    if cells.get().is_empty() {
                        cells.remove();
                    }
                }
            }
            _ => remove_if(self.writers.entry(key.clone()), is_it),
        }
    }
}

fn remove_if<K, C>(entry: Entry<'_, K, C>, is_it: impl FnOnce(&C) -> bool) {
    if let Entry::Occupied(cell) = entry
        && is_it(cell.get())
    {
        cell.remove();
    }
}
