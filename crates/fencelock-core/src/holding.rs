use crate::{Expiry, Foreign, HolderId, HolderInfo, Holders, Key, Occupant, Unknown};

/// What a backend knows about a held key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Holding {
    /// The key.
    pub key: Key,
    /// The holders and their modes.
    pub holders: Holders<HolderInfo>,
    /// The number of waiters in the queue of the backend; 0 without a queue. Tasks of one client that share leases are one
    /// waiter.
    pub waiters: u32,
}

impl Holding {
    /// One holder without waiters.
    pub const fn new(key: Key, holder: HolderInfo) -> Self {
        Self { key, holders: Holders::one(holder), waiters: 0 }
    }

    /// A key that cannot be read, so whether it is held is unknown.
    pub fn unread(key: Key, why: &Unknown) -> Self {
        let by = Occupant::Foreign(Foreign::unread(why.to_string()));
        Self::new(key, HolderInfo::new(by, Expiry::Never))
    }

    /// The same with one more holder.
    #[must_use]
    pub fn with_holder(mut self, holder: HolderInfo) -> Self {
        self.holders = self.holders.and(holder);
        self
    }

    /// The same with a number of waiters.
    #[must_use]
    pub const fn with_waiters(mut self, waiters: u32) -> Self {
        self.waiters = waiters;
        self
    }

    /// The first known holder; of an exclusive lock, the only one.
    pub const fn first(&self) -> &HolderInfo {
        self.holders.first()
    }

    /// The known facts about the hold of this occupant, if listed.
    pub fn hold_of(&self, occupant: &Occupant) -> Option<&HolderInfo> {
        self.holders.iter().find(|hold| hold.occupant == *occupant)
    }

    /// Whether this holder is listed.
    pub fn has(&self, holder: HolderId) -> bool {
        self.holders.iter().any(|hold| hold.holder_id() == Some(holder))
    }
}
