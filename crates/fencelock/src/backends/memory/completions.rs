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

    pub(super) fn write(&self, key: &Key, completion: &Completion, now_micros: u64) {
        let (mut stored, completion) = (self.lock(), completion.clone());
        let merged = match stored.remove(key) {
            Some(before) => before.merge(completion, now_micros),
            None => completion,
        };
        stored.insert(key.clone(), merged);
    }

    pub(super) fn clear(&self, key: &Key, seen: &Completion) -> ClearCompletion {
        let mut stored = self.lock();
        match stored.get(key) {
            None => ClearCompletion::Absent,
            Some(stored) if stored.token > seen.token => ClearCompletion::Changed,
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
