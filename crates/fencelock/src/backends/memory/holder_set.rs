use fencelock_core::{
    Expiry, FencingToken, Holder, HolderId, HolderInfo, Holders, Holding, Key, Mode, Moment, Occupant, Occupied,
};
use std::time::Duration;

/// An answer to a claim lists this many holders, and counts the others.
const LISTED: usize = 16;

/// The holders of one key: none, one exclusive holder, or a row of holders of one class.
#[derive(Debug, Default)]
pub(super) struct HolderSet {
    /// In the order of their grants.
    holds: Vec<MemoryHold>,
    /// The permits in use.
    used: u32,
    /// No hold ends before this. So a call checks all of them only when one may have ended.
    first_end: Moment,
}

/// A hold.
#[derive(Debug, Clone)]
pub(super) struct MemoryHold {
    pub(super) holder: Holder,
    pub(super) mode: Mode,
    pub(super) fence: FencingToken,
    pub(super) since: Moment,
    pub(super) until: Moment,
}

impl HolderSet {
    /// Their mode; `None` if the key is free. The weight is that of one of the holders.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.holds.first().map(|held| held.mode)
    }

    /// Whether the key is free.
    pub(super) const fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Whether the next claim may fit together with the holders.
    pub(super) fn is_open(&self) -> bool {
        self.mode() != Some(Mode::Exclusive)
    }

    /// Whether a claim in this mode fits together with the holders: the only difference between the modes.
    pub(super) fn fits(&self, mode: Mode) -> bool {
        match (self.mode(), mode) {
            (None, _) => true,
            (Some(present), Mode::Permits { weight, limit, .. }) => {
                present.same_class(mode) && u64::from(self.used) + u64::from(weight) <= u64::from(limit)
            }
            (Some(present), _) => present.same_class(mode),
        }
    }

    pub(super) fn add(&mut self, held: MemoryHold) {
        self.first_end = if self.holds.is_empty() { held.until } else { self.first_end.min(held.until) };
        self.used += weight(&held);
        self.holds.push(held);
    }

    /// Ends a hold. Says whether there was one.
    pub(super) fn remove(&mut self, holder: &HolderId) -> bool {
        let Some(index) = self.holds.iter().position(|held| held.holder.id == *holder) else { return false };
        let held = self.holds.remove(index);
        self.used -= weight(&held);
        true
    }

    /// Ends the holds that are over.
    pub(super) fn expire(&mut self, now: Moment) {
        if self.holds.is_empty() || now < self.first_end {
            return;
        }
        self.holds.retain(|held| now < held.until);
        self.used = self.holds.iter().map(weight).sum();
        self.first_end = self.holds.iter().map(|held| held.until).min().unwrap_or_default();
    }

    /// All holders keep their permits, of a semaphore with another limit.
    pub(super) fn resize(&mut self, limit: u32) {
        for held in &mut self.holds {
            held.mode = held.mode.resized(limit);
        }
    }

    /// The permits in use, and the number of holders.
    pub(super) fn in_use(&self) -> (u64, u32) {
        (self.used.into(), u32::try_from(self.holds.len()).unwrap_or(u32::MAX))
    }

    pub(super) fn get(&self, holder: &HolderId) -> Option<&MemoryHold> {
        self.holds.iter().find(|held| held.holder.id == *holder)
    }

    pub(super) fn get_mut(&mut self, holder: &HolderId) -> Option<&mut MemoryHold> {
        self.holds.iter_mut().find(|held| held.holder.id == *holder)
    }

    /// The holder that has the key for the longest time; of an exclusive lock, the only one.
    pub(super) fn first(&self) -> Option<HolderId> {
        self.holds.first().map(|held| held.holder.id)
    }

    /// The holders, for an answer; `None` if the key is free.
    pub(super) fn holders(&self) -> Option<Holders> {
        let mut listed = self.holds.iter().take(LISTED).map(|held| Occupant::Holder(held.holder.clone()));
        let first = Holders::one(listed.next()?);
        let more = u32::try_from(self.holds.len().saturating_sub(LISTED)).unwrap_or(u32::MAX);
        Some(listed.fold(first, Holders::and).and_unnamed(more))
    }

    pub(super) fn occupied(&self, now: Moment) -> Option<Occupied> {
        let ends = self.holds.iter().map(|held| held.expiry(now));
        let (expiry, since) = (ends.fold(Expiry::Never, Expiry::earlier), self.holds.first()?.since);
        Some(Occupied::new(self.holders()?, expiry).with_held_for(Some(now.since(since))))
    }

    /// The holds that are not over, all of them.
    pub(super) fn holding(&self, key: &Key, now: Moment) -> Option<Holding> {
        let mut holds = self.holds.iter().filter(|held| now < held.until).map(|held| held.info(now));
        let first = Holding::new(key.clone(), holds.next()?);
        Some(holds.fold(first, Holding::with_holder))
    }
}

impl MemoryHold {
    /// The lease lasts at least until then.
    pub(super) fn extend(&mut self, until: Moment) {
        self.until = self.until.max(until);
    }

    fn expiry(&self, now: Moment) -> Expiry {
        if self.until == Moment::NEVER { Expiry::Never } else { Expiry::In(self.until.since(now)) }
    }

    fn held_for(&self, now: Moment) -> Duration {
        now.since(self.since)
    }

    fn info(&self, now: Moment) -> HolderInfo {
        HolderInfo::new(Occupant::Holder(self.holder.clone()), self.expiry(now))
            .with_mode(self.mode)
            .with_fence(Some(self.fence))
            .with_held_for(Some(self.held_for(now)))
    }
}

const fn weight(held: &MemoryHold) -> u32 {
    held.mode.weight()
}
