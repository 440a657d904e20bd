//! Finds the holders of a lock file.

use super::File;
use super::flock_guard::{Probe, probe};
use super::holds::Holds;
use super::record::{Damage, Record, RecordState};
use super::slot_files::{self, SlotFiles};
use fencelock_core::{Expiry, Foreign, HolderInfo, Holders, Holding, Key, Occupant, Occupied, Unknown};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The number of reads of a locked file without a record of its holder: about 1.5 ms, much longer than a holder needs
/// to write its record after locking, or to unlock after its last write.
const READS: u32 = 5;

/// The state of a lock, as far as this process knows.
#[derive(Debug)]
pub(super) enum LockState {
    Free,
    /// Never empty.
    Held(Holds),
    /// The file is locked, and no record names the holder.
    Foreign(Occupant),
}

impl LockState {
    /// The current holders of the lock on this file, if their records belong to it.
    pub(super) fn of(file: &File, path: &Path, belongs: impl Fn(&Record) -> bool) -> Result<Self, Unknown> {
        for attempt in 0..READS {
            let seen = inspect(path, &belongs).map_err(|error| file.io_error("inspect", path, &error))?;
            match seen {
                Some(seen) => return Ok(seen),
                None => pause(attempt),
            }
        }
        Ok(Self::Foreign(foreign("a lock", path)))
    }

    /// What a list shows.
    pub(super) fn holding(self, key: &Key, wall: u64) -> Option<Holding> {
        match self {
            Self::Free => None,
            Self::Held(holds) => holds.holding(key, wall),
            Self::Foreign(by) => Some(Holding::new(key.clone(), HolderInfo::new(by, Expiry::Never))),
        }
    }

    pub(super) fn holders(self) -> Option<Holders> {
        match self {
            Self::Free => None,
            Self::Held(holds) => holds.holders(),
            Self::Foreign(occupant) => Some(occupant.into()),
        }
    }

    /// The holders and the duration of the oldest hold, at `wall` microseconds.
    pub(super) fn occupied(self, wall: u64) -> Option<Occupied> {
        match self {
            Self::Held(holds) => holds.occupied(wall),
            seen => seen.holders().map(|by| Occupied::new(by, Expiry::Never)),
        }
    }
}

/// `None` if a holder has not yet written its record, or a row has changed meanwhile.
fn inspect(path: &Path, belongs: impl Fn(&Record) -> bool) -> io::Result<Option<LockState>> {
    match probe(path)? {
        Probe::Free => Ok(Some(LockState::Free)),
        Probe::Held(Ok(record)) if record.state == RecordState::Held && belongs(&record) => {
            Ok(Some(LockState::Held(Holds::of(vec![record]))))
        }
        // An exclusive holder that is being downgraded has a slot.
        Probe::Held(record) => {
            let slots = SlotFiles::probe(path, record.map_or(0, |record| record.slots), belongs)?;
            Ok((!slots.holds.is_empty()).then_some(LockState::Held(slots.holds)))
        }
        Probe::Row(record) => inspect_row(path, &record, belongs),
    }
}

/// The slots are probed one after another, and holders may enter and leave during this time. So a row is free only if no holder
/// has entered it since its record was read.
fn inspect_row(
    path: &Path,
    record: &Result<Record, Damage>,
    belongs: impl Fn(&Record) -> bool,
) -> io::Result<Option<LockState>> {
    let slots = SlotFiles::probe(path, slot_files::count(path, record), belongs)?;
    if !slots.holds.is_empty() {
        return Ok(Some(LockState::Held(slots.holds.resized_by(record.as_ref().ok()))));
    }
    let is_same = match probe(path)? {
        Probe::Free => true,
        Probe::Row(again) => again == *record,
        Probe::Held(_) => false,
    };
    Ok((slots.are_free() && is_same).then_some(LockState::Free))
}

/// A holder that writes no records: `flock(1)`, or another program.
pub(super) fn foreign(what: &str, path: &Path) -> Occupant {
    Occupant::Foreign(Foreign::other(format!("{what} on {}", path.display())))
}

/// 50, 100, 200, 400, 800 us, then 1.6 ms each.
pub(super) fn pause(attempt: u32) {
    thread::sleep(Duration::from_micros(50 << attempt.min(5)));
}
