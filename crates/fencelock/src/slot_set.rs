use crate::lock::Lock;
use std::time::Duration;

/// The settings of a claim.
#[derive(Clone, Debug)]
pub(crate) struct SlotSet {
    pub(crate) key: String,
    pub(crate) slots: u32,
    pub(crate) wait: Option<Duration>,
    /// The settings of the lock of each slot.
    pub(crate) template: Lock,
}

impl SlotSet {
    pub(crate) fn name_of(&self, slot: u32) -> String {
        format!("{}#{slot}", self.key)
    }

    pub(crate) fn lock_of(&self, slot: u32) -> Lock {
        self.template.with_key(self.name_of(slot))
    }
}
