use crate::{Key, Mode};
use std::collections::HashMap;

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

    /// The engine for tasks that request this mode.
    pub fn get(&self, key: &Key, mode: Mode) -> Option<&C> {
        match mode {
            Mode::Shared => self.readers.get(key),
            Mode::Permits { .. } => self.permits.get(key)?.get(&mode),
            _ => self.writers.get(key),
        }
    }

    /// Adds an engine.
    pub fn insert(&mut self, key: Key, mode: Mode, cell: C) {
        match mode {
            Mode::Shared => _ = self.readers.insert(key, cell),
            Mode::Permits { .. } => _ = self.permits.entry(key).or_default().insert(mode, cell),
            _ => _ = self.writers.insert(key, cell),
        }
    }

    /// Removes an engine that is empty.
    pub fn remove(&mut self, key: &Key, mode: Mode) {
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
