use crate::history::HoldMode;
use std::collections::BTreeMap;

/// One hold for each mode: the most extreme one so far. A key is used in few modes, so checking all of them is cheap.
#[derive(Debug)]
pub(super) struct ByMode<T>(BTreeMap<HoldMode, T>);

impl<T> Default for ByMode<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> ByMode<T> {
    /// Stores `new` if there is no hold of this mode, or if `replaces` returns true for it.
    pub(super) fn keep(&mut self, mode: HoldMode, new: T, replaces: impl FnOnce(&T) -> bool) {
        if self.0.get(&mode).is_none_or(replaces) {
            self.0.insert(mode, new);
        }
    }

    /// The holds that conflict with a hold in this mode.
    pub(super) fn conflicting(&self, mode: HoldMode) -> impl Iterator<Item = T> {
        self.0.iter().filter(move |(other, _)| mode.conflicts(**other)).map(|(_, kept)| *kept)
    }
}
