use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// A vector that takes one pointer. Most keys have none, and there may be very many keys.
#[derive(Debug, Clone)]
pub(super) struct BoxedVec<T>(#[allow(clippy::box_collection, reason = "that is its purpose")] Option<Box<Vec<T>>>);

impl<T> BoxedVec<T> {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn push(&mut self, item: T) {
        self.0.get_or_insert_default().push(item);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.0.as_mut()?.pop()
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let items = self.0.as_mut()?;
        (index < items.len()).then(|| items.remove(index))
    }

    /// Removes all items that match, and returns them in order.
    pub(super) fn extract(&mut self, is_taken: impl FnMut(&mut T) -> bool) -> Vec<T> {
        self.0.as_mut().map(|items| items.extract_if(.., is_taken).collect()).unwrap_or_default()
    }
}

impl<T> Deref for BoxedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> DerefMut for BoxedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}

/// An empty vector equals none.
impl<T: Hash> Hash for BoxedVec<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.deref().hash(state);
    }
}
