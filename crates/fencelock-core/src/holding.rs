use crate::{Expiry, Foreign, Holder, HolderId, HolderInfo, Holders, Key, Mode, Occupant, Unknown};
use std::time::Duration;

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
    /// The first of these waiters, in the order in which they are served: at most [`Holding::NAMED`] of one inspected key, and at
    /// least the first one of a listed key. `None` if they are unknown, as they are without a queue.
    pub queue: Option<Vec<WaiterInfo>>,
}

impl Holding {
    /// So many waiters are named, and the others counted: an answer stays small, however many wait.
    pub const NAMED: usize = 100;

    /// One holder without waiters.
    pub const fn new(key: Key, holder: HolderInfo) -> Self {
        Self { key, holders: Holders::one(holder), waiters: 0, queue: None }
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

    /// The same with the first waiters, if known.
    #[must_use]
    pub fn with_queue(mut self, queue: Option<Vec<WaiterInfo>>) -> Self {
        self.queue = queue;
        self
    }

    /// How long the waiter has waited that has waited longest, if known.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.queue.iter().flatten().filter_map(|waiter| waiter.waited).max()
    }

    /// The first known holder; of an exclusive lock, the only one.
    pub const fn first(&self) -> &HolderInfo {
        self.holders.first()
    }

    /// The known facts about the hold of this occupant, if listed.
    pub fn hold_of(&self, occupant: &Occupant) -> Option<&HolderInfo> {
        self.holders.iter().find(|hold| hold.occupant == *occupant)
    }

    /// The mode in which a hold of `holder` is resumed by a request for `mode`, which a grant does not contain; or the mode that it has, if
    /// that is another one. A reader must not be resumed as a writer, nor two permits as five. The limit is that of the server: the
    /// semaphore may have been resized.
    ///
    /// # Errors
    /// The mode of the hold.
    pub fn resumed_mode(&self, holder: HolderId, mode: Mode) -> Result<Mode, Mode> {
        let own = self.holders.iter().find(|held| held.holder_id() == Some(holder));
        // If the hold has ended in the meantime, its first renewal detects that.
        if own.is_none() && self.holders.count() == 1 {
            return Ok(mode);
        }
        // Of very many holders, only some are listed, and all have the same class.
        let held = own.map_or_else(|| self.first().mode, |own| own.mode);
        match (held.limit(), mode.limit()) {
            (None, None) if held == mode => Ok(mode),
            (Some(_), Some(_)) if own.is_some() && held.weight() == mode.weight() => Ok(held),
            (Some(limit), Some(_)) if own.is_none() && mode.weight() <= limit => Ok(mode.resized(limit)),
            _ => Err(held),
        }
    }

    /// Whether this holder is listed.
    pub fn has(&self, holder: HolderId) -> bool {
        self.holders.iter().any(|hold| hold.holder_id() == Some(holder))
    }
}

/// A client in the queue of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The waiter.
    pub holder: Holder,
    /// The mode that it claims.
    pub mode: Mode,
    /// How long it has waited, if known.
    pub waited: Option<Duration>,
}

impl WaiterInfo {
    /// A waiter that has waited this long, if known.
    pub const fn new(holder: Holder, mode: Mode, waited: Option<Duration>) -> Self {
        Self { holder, mode, waited }
    }
}
