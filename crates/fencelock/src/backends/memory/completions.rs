use fencelock_core::{ClearCompletion, Completion, CompletionRead, Key};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The completions of a memory backend. Nothing is removed: one for each key is small.
#[derive(Debug, Default)]
pub(super) struct Completions(Mutex<HashMap<Key, Completion>>);

impl Completions {
    pub(super) fn read(&self, key: &Key, now_micros: u64) -> CompletionRead {
        CompletionRead::new(self.lock().get(key).cloned(), now_micros)
    }

    /// Stores it, unless the stored one supersedes it.
    pub(super) fn write(&self, key: &Key, completion: &Completion) {
        let mut stored = self.lock();
        if stored.get(key).is_none_or(|stored| completion.supersedes(stored)) {
            stored.insert(key.clone(), completion.clone());
        }
    }

    pub(super) fn clear(&self, key: &Key, seen: &Completion) -> ClearCompletion {
        let mut stored = self.lock();
        match stored.get(key) {
            None => ClearCompletion::Absent,
            Some(stored) if stored != seen => ClearCompletion::Changed,
            Some(_) => {
                stored.remove(key);
                ClearCompletion::Cleared
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Completion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
