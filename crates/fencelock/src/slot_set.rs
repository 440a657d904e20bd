use crate::lock::Lock;

/// The settings of a claim.
#[derive(Clone, Debug)]
pub(crate) struct SlotSet {
    /// Its key is that of the set, and the others are those of the lock of each slot. The wait is for any of them.
    pub(crate) lock: Lock,
    pub(crate) slots: u32,
}

impl SlotSet {
    pub(crate) fn name_of(&self, slot: u32) -> String {
        format!("{}#{slot}", self.lock.key)
    }

    pub(crate) fn lock_of(&self, slot: u32) -> Lock {
        Lock { key: self.name_of(slot), ..self.lock.clone() }
    }
}
