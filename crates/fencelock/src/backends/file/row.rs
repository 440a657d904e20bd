//! Adds holders to a row, one process at a time.
//!
//! A holder of a row has three locks: a shared one on the lock file, which keeps exclusive holders out, an exclusive one on a
//! slot file, which identifies it, and, only while it enters the row, an exclusive one on `<key>.lock.row`. So each grant has its
//! own token, and the permits in use cannot increase while they are counted.

use super::flock::TryLock;
use super::flock_guard::FlockGuard;
use super::name::row_path;
use super::record::{Damage, MOST_SLOTS, Record};
use super::slot_files::{self, SlotFiles};
use super::table::HeldFile;
use fencelock_core::{Key, Mode};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The number of attempts to convert the lock of a downgraded holder. Only a process that checks the slots can hold a conflicting
/// lock without holding the key.
const CONVERSIONS: u32 = 24;

/// The row of a key. No other process can enter it while this value exists.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) slots: SlotFiles,
    /// The record of the last grant.
    pub(super) record: Result<Record, Damage>,
    /// The lock on the lock file.
    pub(super) lock: Arc<FlockGuard>,
    /// Released last.
    _entry: FlockGuard,
}

impl Row {
    /// Opens the row with a shared lock on the lock file; `None` if another process is entering it, or holds the key exclusively.
    pub(super) fn open(path: &Path, key: &Key) -> io::Result<Option<Self>> {
        let Some(entry) = FlockGuard::take(&row_path(path))? else { return Ok(None) };
        let Some(lock) = FlockGuard::share(path)? else { return Ok(None) };
        Self::read(entry, Arc::new(lock), key).map(Some)
    }

    /// Opens the row of an exclusive holder; `None` if another process tries to enter it.
    pub(super) fn of_exclusive(lock: &Arc<FlockGuard>, key: &Key) -> io::Result<Option<Self>> {
        let Some(entry) = FlockGuard::take(&row_path(lock.path()))? else { return Ok(None) };
        Self::read(entry, Arc::clone(lock), key).map(Some)
    }

    fn read(entry: FlockGuard, lock: Arc<FlockGuard>, key: &Key) -> io::Result<Self> {
        entry.share_permissions_of(&lock)?;
        let record = lock.read()?;
        let count = slot_files::count(lock.path(), &record);
        let mut slots = SlotFiles::probe(lock.path(), count, |record| record.key == *key)?;
        slots.holds = slots.holds.resized_by(record.as_ref().ok());
        Ok(Self { slots, record, lock, _entry: entry })
    }

    /// Whether a claim in this mode fits. A slot without a record may be that of a holder whose record was damaged, so then the
    /// permits in use are unknown.
    pub(super) fn has_room(&self, mode: Mode) -> bool {
        self.slots.holds.fits(mode) && (mode == Mode::Shared || self.slots.unnamed == 0)
    }

    /// Adds this hold. The new token is written to the lock file before the record of the hold.
    pub(super) fn add(self, record: Record) -> io::Result<HeldFile> {
        let no_slot = || {
            let full = format!("other programs lock the slot files, or {MOST_SLOTS} holders share the key");
            io::Error::new(ErrorKind::WouldBlock, full)
        };
        let (number, slot) = self.slots.take(self.lock.path())?.ok_or_else(no_slot)?;
        slot.share_permissions_of(&self.lock)?;
        self.lock.write(&record.of_row(self.slots.count_with(number)))?;
        slot.write(&record)?;
        Ok(HeldFile { record, lock: self.lock, slot: Some(slot) })
    }

    /// Changes the limit of the semaphore while its holders keep their permits. The limit is in the record of the lock file, so
    /// that no process writes to the slots of others.
    pub(super) fn resize(&self, semaphore: Mode) -> io::Result<()> {
        let last = self.record.as_ref().map_err(|Damage(why)| {
            let advice = format!("its record is damaged ({why}): it can be changed when all permits are free");
            io::Error::new(ErrorKind::InvalidData, advice)
        })?;
        self.lock.write(&Record { mode: semaphore, ..last.clone() })
    }

    /// Turns the exclusive hold into the first hold of the row; `None` if the lock is lost.
    ///
    /// The slot is locked and recorded first. So a claim of the exclusive lock that succeeds during the conversion, where that is
    /// not one step, finds the slot in use and releases the lock.
    pub(super) fn add_exclusive(self, record: Record) -> io::Result<Option<HeldFile>> {
        let held = self.add(record)?;
        for _ in 0..CONVERSIONS {
            if held.lock.downgrade()? == TryLock::Locked {
                return Ok(Some(held));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }
}
