use super::{ClearCompletion, Completion, CompletionRead, CountedSuccess, WriteCompletion, unsupported};
use crate::{Answer, Backend, HolderId, Key};

/// A backend that stores a [`Completion`] next to each lock: [`Backend::completions`].
pub trait Completions: Backend {
    /// Reads the completion of a key, and the time of the backend.
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead>;

    /// [Merges](Completion::merge) a completion into the stored one, if `holder` holds the key exclusively, in one step. It stays
    /// until [`Completion::KEPT`] after its end at least. Anything else that is stored there is an error, and is not changed.
    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion>;

    /// Makes sure that no later read before the end of `done` misses its completion. A backend with one node stores it again if it
    /// would [forget it before](CountedSuccess::outlasts_its_completion); one that never forgets needs nothing for that.
    fn confirm_completion<'a>(&'a self, key: &'a Key, done: &'a CountedSuccess) -> Answer<'a, ()> {
        let _ = (key, done);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes the completion that was read, or that of an earlier run. One of a later run is not changed.
    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion>;
}

/// [`Completions`] for callers: a backend without it refuses.
impl dyn Backend + '_ {
    /// [`Completions::read_completion`], or an error.
    pub fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        self.completions().map_or_else(|| refused(self.name(), key), |stored| stored.read_completion(key))
    }

    /// [`Completions::write_completion`], or an error.
    pub fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        let write = |stored: &'a dyn Completions| stored.write_completion(key, holder, completion);
        self.completions().map_or_else(|| refused(self.name(), key), write)
    }

    /// [`Completions::confirm_completion`], or an error.
    pub fn confirm_completion<'a>(&'a self, key: &'a Key, done: &'a CountedSuccess) -> Answer<'a, ()> {
        self.completions().map_or_else(|| refused(self.name(), key), |stored| stored.confirm_completion(key, done))
    }

    /// [`Completions::clear_completion`], or an error.
    pub fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        self.completions().map_or_else(|| refused(self.name(), key), |stored| stored.clear_completion(key, seen))
    }
}

fn refused<'a, T: Send + 'a>(backend: String, key: &Key) -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(unsupported(backend, key))))
}
