//! The holds of one key at one moment, as their records show them.

use super::record::Record;
use fencelock_core::{Expiry, Holders, Holding, Key, Mode, Occupant, Occupied};
use std::time::Duration;

/// No hold, one exclusive hold, or the holds of a row: several holds of one class.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// In the order of their grants.
    records: Vec<Record>,
}

impl Holds {
    pub(super) fn of(mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| record.fence);
        Self { records }
    }

    /// The limit of a semaphore is that of its last grant, or of a change since: the record of the lock file has it. The records of
    /// the holders have the one of their own grant.
    pub(super) fn resized_by(mut self, lock_file: Option<&Record>) -> Self {
        if let Some(limit) = lock_file.and_then(|record| record.mode.limit()) {
            for record in &mut self.records {
                record.mode = record.mode.resized(limit);
            }
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// The mode; `None` if there is no hold. The weight is that of one of the holders.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.records.first().map(|record| record.mode)
    }

    /// Whether a claim in this mode fits together with the holders.
    pub(super) fn fits(&self, mode: Mode) -> bool {
        match (self.mode(), mode) {
            (None, _) => true,
            (Some(present), Mode::Permits { weight, limit, .. }) => {
                present.same_class(mode) && self.used() + u64::from(weight) <= u64::from(limit)
            }
            (Some(present), _) => present.same_class(mode),
        }
    }

    /// The permits in use.
    pub(super) fn used(&self) -> u64 {
        self.iter().map(|record| u64::from(record.weight())).sum()
    }

    /// The holders, for the reply to a claim; `None` if there are none.
    pub(super) fn holders(&self) -> Option<Holders> {
        let mut listed = self.iter().take(Holders::LISTED).map(|record| Occupant::Holder(record.holder.clone()));
        let first = Holders::one(listed.next()?);
        let more = u32::try_from(self.records.len().saturating_sub(Holders::LISTED)).unwrap_or(u32::MAX);
        Some(listed.fold(first, Holders::and).and_unnamed(more))
    }

    /// The holders and the duration of the oldest hold, at `wall` microseconds.
    pub(super) fn occupied(&self, wall: u64) -> Option<Occupied> {
        let since = self.iter().map(|record| record.since).min()?;
        let held_for = Duration::from_micros(wall.saturating_sub(since));
        Some(Occupied::new(self.holders()?, Expiry::Never).with_held_for(Some(held_for)))
    }

    /// All holds.
    pub(super) fn holding(&self, key: &Key, wall: u64) -> Option<Holding> {
        let mut holds = self.iter().map(|record| record.info(wall));
        let first = Holding::new(key.clone(), holds.next()?);
        Some(holds.fold(first, Holding::with_holder))
    }
}
