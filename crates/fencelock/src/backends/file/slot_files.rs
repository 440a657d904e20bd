//! The slot files of a row: each holder of a shared lock or of permits has one, with its record and an exclusive lock.
//!
//! They are `<key>.lock.0`, `<key>.lock.1` and so on, and are never deleted, like the lock file itself. The kernel frees the
//! slot of a crashed holder. The record of the lock file contains the number of slots that may be in use.

use super::flock_guard::{FlockGuard, Probe, probe};
use super::holds::Holds;
use super::name::slot_path;
use super::record::{Damage, MOST_SLOTS, Record, RecordState};
use std::io;
use std::path::Path;

/// The number of slots beyond those in use that a claim tries: another process may probe one of them at that moment.
const SPARE: u32 = 64;

/// The slots of a lock file at one moment.
#[derive(Debug, Default)]
pub(super) struct SlotFiles {
    pub(super) holds: Holds,
    /// The number of locked slots without a record of their holder: locked by another program, or locked and not yet
    /// written.
    pub(super) unnamed: usize,
    /// The locked slots, in order.
    locked: Vec<u32>,
}

impl SlotFiles {
    /// Probes the slots below `count`.
    pub(super) fn probe(lock_file: &Path, count: u32, belongs: impl Fn(&Record) -> bool) -> io::Result<Self> {
        let (mut locked, mut records) = (Vec::new(), Vec::new());
        for slot in 0..count {
            let Probe::Held(record) = probe(&slot_path(lock_file, slot))? else { continue };
            locked.push(slot);
            records.extend(record.ok().filter(|record| record.state == RecordState::Held && belongs(record)));
        }
        Ok(Self { unnamed: locked.len() - records.len(), locked, holds: Holds::of(records) })
    }

    pub(super) fn are_free(&self) -> bool {
        self.locked.is_empty()
    }

    /// Locks the first free slot; `None` if the row is full. Only one process at a time does this for one lock file.
    pub(super) fn take(&self, lock_file: &Path) -> io::Result<Option<(u32, FlockGuard)>> {
        let end = MOST_SLOTS.min(self.locked.last().map_or(0, |last| last + 1) + SPARE);
        for slot in (0..end).filter(|slot| self.locked.binary_search(slot).is_err()) {
            if let Some(guard) = FlockGuard::take(&slot_path(lock_file, slot))? {
                return Ok(Some((slot, guard)));
            }
        }
        Ok(None)
    }

    /// The number of slots that may be in use after `taken` was taken.
    pub(super) fn count_with(&self, taken: u32) -> u32 {
        self.locked.last().map_or(taken, |last| taken.max(*last)) + 1
    }
}

/// The number of slots that may be in use. If the record is lost, all slot files without a gap are probed.
/// Never more than [`MOST_SLOTS`].
pub(super) fn count(lock_file: &Path, record: &Result<Record, Damage>) -> u32 {
    match record {
        Ok(record) => record.slots,
        Err(_) => {
            (0..MOST_SLOTS).find(|slot| slot_path(lock_file, *slot).symlink_metadata().is_err()).unwrap_or(MOST_SLOTS)
        }
    }
}
