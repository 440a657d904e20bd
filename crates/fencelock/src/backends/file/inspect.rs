//! Finds the holders of a lock file.

use super::File;
use super::directory::{Directory, SUFFIX, file_name, key_of, row_path, slot_path};
use super::flock_guard::{FlockGuard, Probe, probe};
use super::record::{Damage, MOST_SLOTS, Record, RecordState};
use super::table::HeldFile;
use fencelock_core::{Expiry, Foreign, HolderInfo, Holders, Holding, Key, Mode, Occupant, Occupied, Unknown};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, thread};

/// The number of reads of a locked file without a record of its holder: about 1.5 ms, much longer than a holder needs
/// to write its record after locking, or to unlock after its last write.
const READS: u32 = 5;

/// `None` if a holder has not yet written its record, or a row has changed meanwhile.
fn inspect(path: &Path, belongs: impl Fn(&Record) -> bool) -> io::Result<Option<Holds>> {
    match probe(path)? {
        Probe::Free => Ok(Some(Holds::default())),
        Probe::Held(Ok(record)) if record.state == RecordState::Held && belongs(&record) => {
            Ok(Some(Holds::of(vec![record])))
        }
        // An exclusive holder that is being downgraded has a slot.
        Probe::Held(record) => {
            let slots = SlotFiles::probe(path, record.map_or(0, |record| record.slots), belongs)?;
            Ok(Some(slots.holds).filter(|holds| !holds.is_free()))
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
) -> io::Result<Option<Holds>> {
    let slots = SlotFiles::probe(path, count(path, record), belongs)?;
    if !slots.holds.is_free() {
        return Ok(Some(slots.holds.resized_by(record.as_ref().ok())));
    }
    let is_same = match probe(path)? {
        Probe::Free => true,
        Probe::Row(again) => again == *record,
        Probe::Held(_) => false,
    };
    Ok((slots.are_free() && is_same).then_some(slots.holds))
}

/// A holder that writes no records: `flock(1)`, or another program.
pub(super) fn foreign(what: &str, path: &Path) -> Occupant {
    Occupant::Foreign(Foreign::other(format!("{what} on {}", path.display())))
}

/// 50, 100, 200, 400, 800 us, then 1.6 ms each.
pub(super) fn pause(attempt: u32) {
    thread::sleep(Duration::from_micros(50 << attempt.min(5)));
}

// The holds of one key at one moment, as their records show them.

/// No hold, one exclusive hold, or the holds of a row: several holds of one class.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// In the order of their grants.
    records: Vec<Record>,
    /// The file is locked, and no record names the holder.
    pub(super) foreign: Option<Occupant>,
}

impl Holds {
    /// The current holders of the lock on this file, if their records belong to it.
    pub(super) fn seen(file: &File, path: &Path, belongs: impl Fn(&Record) -> bool) -> Result<Self, Unknown> {
        for attempt in 0..READS {
            if let Some(seen) = inspect(path, &belongs).map_err(|error| file.io_error("inspect", path, &error))? {
                return Ok(seen);
            }
            pause(attempt);
        }
        Ok(Self { foreign: Some(foreign("a lock", path)), records: Vec::new() })
    }

    fn of(mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| record.fence);
        Self { records, foreign: None }
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

    pub(super) fn is_free(&self) -> bool {
        self.records.is_empty() && self.foreign.is_none()
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
        let room = mode.limit().map_or(u64::MAX, u64::from);
        self.mode().is_none_or(|held| held.same_class(mode) && self.used() + u64::from(mode.weight()) <= room)
    }

    /// The permits in use.
    pub(super) fn used(&self) -> u64 {
        self.iter().map(|record| u64::from(record.mode.weight())).sum()
    }

    /// The holders, for the reply to a claim; `None` if there are none.
    pub(super) fn holders(&self) -> Option<Holders> {
        let named = self.iter().map(|record| Occupant::Holder(record.holder.clone()));
        Holders::listed(named.chain(self.foreign.clone()))
    }

    /// The holders and the duration of the oldest hold, at `wall` microseconds.
    pub(super) fn occupied(&self, wall: u64) -> Option<Occupied> {
        let since = self.iter().map(|record| record.since).min();
        let held_for = since.map(|since| Duration::from_micros(wall.saturating_sub(since)));
        Some(Occupied::new(self.holders()?, Expiry::Never).with_held_for(held_for))
    }

    /// All holds, for a list.
    pub(super) fn holding(&self, key: &Key, wall: u64) -> Option<Holding> {
        let foreign = self.foreign.clone().map(|by| HolderInfo::new(by, Expiry::Never));
        let mut holds = self.iter().map(|record| record.info(wall)).chain(foreign);
        let first = Holding::new(key.clone(), holds.next()?);
        Some(holds.fold(first, Holding::with_holder))
    }
}

// The slot files of a row: each holder of a shared lock or of permits has one, with its record and an exclusive lock.
//
// They are `<key>.lock.0`, `<key>.lock.1` and so on, and are never deleted, like the lock file itself. The kernel frees the
// slot of a crashed holder. The record of the lock file contains the number of slots that may be in use.

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

// Adds holders to a row, one process at a time.
//
// A holder of a row has three locks: a shared one on the lock file, which keeps exclusive holders out, an exclusive one on a
// slot file, which identifies it, and, only while it enters the row, an exclusive one on `<key>.lock.row`. So each grant has its
// own token, and the permits in use cannot increase while they are counted.

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
        let count = count(lock.path(), &record);
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
            if held.lock.downgrade()? {
                return Ok(Some(held));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }
}

// Lists the holders of all keys.

/// The number of keys that are listed although their files cannot be read; other users of the directory may create more.
const NAMED: usize = 16;

/// The number of files that a list inspects before it lets other tasks run: usually less than a millisecond.
const STRETCH: usize = 16;

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: usize,
    pub(super) held: Vec<Holding>,
    /// Why files cannot be read, with their keys, and how many more there are, with those of long keys, which the name does not contain.
    pub(super) unread: Vec<(Key, Unknown)>,
    pub(super) more_unread: usize,
}

impl Scan {
    /// The number of lock files, and the held ones. A foreign lock on a file with an unknown key is omitted, because it has no
    /// name. Files that cannot be read, such as symbolic links, are counted.
    ///
    /// Other tasks, such as one that waits for a signal, run during the scan of a large directory.
    pub(super) async fn of(file: &File) -> Result<Self, Unknown> {
        let mut scan = Self::default();
        for (index, entry) in entries(&file.directory)?.enumerate() {
            scan.add(file, entry)?;
            if index % STRETCH == STRETCH - 1 {
                // It needs no runtime.
                tokio::task::yield_now().await;
            }
        }
        Ok(scan)
    }

    fn add(&mut self, file: &File, entry: io::Result<fs::DirEntry>) -> Result<(), Unknown> {
        let name = entry.map_err(|error| unlisted(&file.directory, &error))?.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) else { return Ok(()) };
        self.files += 1;
        let belongs = |record: &Record| file_name(&record.key) == name;
        let seen = match Holds::seen(file, &file.directory.path().join(name), belongs) {
            Ok(seen) => seen,
            Err(unknown) => {
                match key_of(name).filter(|_| self.unread.len() < NAMED) {
                    Some(key) => self.unread.push((key, unknown)),
                    None => self.more_unread += 1,
                }
                return Ok(());
            }
        };
        // The name of a long key is only in the records.
        let key = seen.iter().next().map(|record| record.key.clone()).or_else(|| key_of(name));
        self.held.extend(key.and_then(|key| seen.holding(&key, file.clock.wall_micros())));
        Ok(())
    }

    /// The held keys, and those of which it is unknown.
    pub(super) fn into_listed(self) -> Vec<Holding> {
        let unread = self.unread.into_iter().map(|(key, why)| Holding::unread(key, &why));
        let listed = self.held.into_iter().chain(unread).collect();
        if self.more_unread > 0 {
            tracing::warn!("{} lock files cannot be read and are not listed", self.more_unread);
        }
        listed
    }
}

/// None if the directory is missing.
fn entries(directory: &Directory) -> Result<impl Iterator<Item = io::Result<fs::DirEntry>> + use<>, Unknown> {
    if directory.is_missing() {
        tracing::debug!(directory = %directory.name(), "does not exist: there are no locks yet");
        return Ok(None.into_iter().flatten());
    }
    let entries = fs::read_dir(directory.path()).map_err(|error| unlisted(directory, &error))?;
    Ok(Some(entries).into_iter().flatten())
}

fn unlisted(directory: &Directory, error: &io::Error) -> Unknown {
    directory.unknown("cannot list this directory", error)
}

#[cfg(test)]
mod scan_tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[tokio::test]
    async fn very_many_files_that_cannot_be_read_are_counted() {
        let scratch = Scratch::new();
        let locks = File::open(scratch.path()).unwrap();
        for number in 0..NAMED * 2 {
            fs::create_dir(scratch.path().join(format!("{number}.lock"))).unwrap();
        }
        let scan = Scan::of(&locks).await.unwrap();
        assert_eq!((scan.files, scan.unread.len(), scan.more_unread), (NAMED * 2, NAMED, NAMED));
        assert_eq!(scan.into_listed().len(), NAMED);
    }

    #[test]
    fn a_list_of_many_files_lets_other_tasks_run() {
        let scratch = Scratch::new();
        let locks = File::open(scratch.path()).unwrap();
        for number in 0..STRETCH * 3 {
            fs::write(scratch.path().join(format!("{number}.lock")), "").unwrap();
        }
        let (mut list, mut waits) = (pin!(Scan::of(&locks)), 0);
        while list.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            waits += 1;
        }
        assert!(waits >= 3, "{waits}");
    }
}
