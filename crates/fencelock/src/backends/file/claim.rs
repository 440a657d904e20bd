//! Claims a lock file and finds its holders. Every step takes microseconds, unless another process holds a conflicting lock.

use super::flock_guard::{FlockGuard, tighten_file};
use super::inspect::{Holds, Row, SlotFiles, foreign, pause};
use super::record::{Damage, Record, RecordState};
use super::table::HeldFile;
use super::{File, inspect, writer_mark};
use fencelock_core::{
    Acquire, Claim, Downgrade, Event, Eviction, Expiry, Fault, Holder, HolderId, Holding, Intent, Invalid, Key, Mode,
    Occupied, Release, Renew, Renewal, Resize, Resized, TokenBlock, Unknown, next_block,
};
use std::io;
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

/// The number of attempts at a lock without an exclusive holder until it is assumed to be shared permanently. With the pauses of
/// [`pause`] this takes about 33 ms: a process that probes the lock may be preempted.
const TRIES: u32 = 24;

/// The number of times that a claim lets a waiting writer go first, about 13 ms: the writer was notified, and takes the key at once if it
/// is not delayed.
const DEFERRALS: u32 = 12;

/// The number of attempts to enter a row, about 100 ms: processes enter it one after another, and readers whose claims are refused may
/// hold the lock for a moment.
const ROW_TRIES: u32 = 64;

impl File {
    /// Acquires the key, or returns the holders.
    ///
    /// A refused lock proves nothing: another process may only have probed it, or may be entering the row. So the result is
    /// "busy" only if a probe finds holders; otherwise the attempt is repeated.
    pub(super) fn try_claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let path = self.directory.file_of(&claim.key);
        let (tries, culprit) = match claim.mode {
            Mode::Exclusive => (TRIES, "a shared lock"),
            _ => (ROW_TRIES, "a process that enters the row"),
        };
        for attempt in 0..tries {
            let seen = self.inspect_key(&claim.key)?;
            if seen.foreign.is_some() {
                // A user without access may have locked the file, because its permissions were too open.
                tighten_file(&path);
            }
            if let Some(present) = seen.mode().filter(|present| present.conflicts(claim.mode)) {
                return Ok(Acquire::Conflict(present));
            }
            if !self.has_room(claim, &seen, &path) {
                let occupied = match seen.occupied(self.clock.wall_micros()) {
                    Some(occupied) => occupied,
                    None if attempt < DEFERRALS => {
                        pause(attempt);
                        continue;
                    }
                    None => Occupied::new(foreign("a writer that waits for its turn", &path), Expiry::Never),
                };
                if claim.intent == Intent::Enqueue && self.watch.subscribe(&claim.key) {
                    // The lock may have been released between the probe and the watch.
                    continue;
                }
                return Ok(Acquire::Busy(occupied));
            }
            let taken = match claim.mode {
                Mode::Exclusive => self.take_alone(claim, &path)?,
                _ => self.enter_row(claim, &path)?,
            };
            if let Some(tokens) = taken {
                return Ok(Acquire::Granted { tokens });
            }
            pause(attempt);
        }
        Ok(Acquire::Busy(Occupied::new(foreign(culprit, &path), Expiry::Never)))
    }

    /// Whether the claim fits together with these holders. A free key has no room for a reader while a writer waits for its turn. A writer
    /// that will wait for a row sets its mark.
    fn has_room(&self, claim: &Claim, holds: &Holds, path: &Path) -> bool {
        let wall = self.clock.wall_micros();
        if holds.is_free() {
            return claim.mode == Mode::Exclusive || !writer_mark::is_set(path, wall);
        }
        if holds.foreign.is_some() {
            return false;
        }
        if claim.mode != Mode::Exclusive {
            return holds.fits(claim.mode) && !writer_mark::closes_row(path, wall);
        }
        if holds.mode() == Some(Mode::Exclusive) {
            self.marks.remove(&claim.key, wall);
        } else if claim.intent == Intent::Enqueue
            && let Err(error) = self.marks.set(&claim.key, path, wall)
        {
            tracing::debug!(path = %path.display(), %error, "cannot record the waiting writer: new readers may overtake it");
        }
        false
    }

    fn take_alone(&self, claim: &Claim, path: &Path) -> Result<Option<TokenBlock>, Unknown> {
        let Some(lock) = self.opened(FlockGuard::take(path), path)? else { return Ok(None) };
        let last = lock.read().map_err(|error| self.io_error("read", path, &error))?;
        let slots = inspect::count(path, &last);
        if slots > 0 {
            // A holder that is being downgraded, or whose process is exiting, may have only its slot.
            let slots = SlotFiles::probe(path, slots, |_| true);
            if !slots.map_err(|error| self.io_error("inspect", path, &error))?.are_free() {
                return Ok(None);
            }
            // Without a mark there is nothing to do.
            let _ = writer_mark::begin_turn(path);
        }
        self.marks.remove(&claim.key, self.clock.wall_micros());
        let damage = self.lost_record(&lock, &last);
        let (record, tokens) = self.next_record(&last, claim)?;
        lock.write(&record).map_err(|error| self.io_error("write", path, &error))?;
        warn_of_lost(damage, path, &claim.key);
        self.table.insert(HeldFile { record, lock: Arc::new(lock), slot: None });
        Ok(Some(tokens))
    }

    fn enter_row(&self, claim: &Claim, path: &Path) -> Result<Option<TokenBlock>, Unknown> {
        let Some(row) = self.opened(Row::open(path, &claim.key), path)? else { return Ok(None) };
        if !row.has_room(claim.mode) {
            return Ok(None);
        }
        let damage = self.lost_record(&row.lock, &row.record);
        let (record, tokens) = self.next_record(&row.record, claim)?;
        self.table.insert(row.add(record).map_err(|error| self.io_error("write", path, &error))?);
        warn_of_lost(damage, path, &claim.key);
        Ok(Some(tokens))
    }

    /// Creates the directory again if it was deleted, for the next attempt.
    fn opened<T>(&self, opened: io::Result<Option<T>>, path: &Path) -> Result<Option<T>, Unknown> {
        match opened {
            Ok(opened) => Ok(opened),
            Err(error) if error.kind() == ErrorKind::NotFound => self.directory.create().map(|()| None),
            Err(error) => Err(self.io_error("lock", path, &error)),
        }
    }

    /// Why the record of the last hold is lost, if it is.
    fn lost_record(&self, lock: &FlockGuard, last: &Result<Record, Damage>) -> Option<String> {
        let Err(Damage(why)) = last else { return None };
        // The process that created the file waits for this one.
        let is_young = || lock.created_empty_at().is_some_and(|born| is_new(born, self.clock.wall_micros()));
        (!lock.created && !is_young()).then(|| why.clone())
    }

    /// The record of the new hold, and its tokens, above those of the last one. The record contains the last token.
    fn next_record(&self, last: &Result<Record, Damage>, claim: &Claim) -> Result<(Record, TokenBlock), Unknown> {
        let previous = last.as_ref().map_or(0, |record| record.fence.get());
        let tokens =
            next_block(previous, self.clock.wall_micros(), claim.block).map_err(|error| self.invalid(&error))?;
        Ok((self.record(&claim.key, claim.holder.clone(), claim.mode, tokens), tokens))
    }

    /// The record of a hold that begins now.
    pub(super) fn record(&self, key: &Key, holder: Holder, mode: Mode, tokens: TokenBlock) -> Record {
        let (state, since, pid) = (RecordState::Held, self.clock.wall_micros(), std::process::id());
        Record { state, key: key.clone(), holder, fence: tokens.last(), since, pid, mode, slots: 0 }
    }

    pub(super) fn invalid(&self, error: &Invalid) -> Unknown {
        Unknown::new(self.directory.name(), Fault::Other, error.to_string())
    }
}

/// Only after a grant: a claim that cannot write its record is repeated, and would repeat the warning.
fn warn_of_lost(lost: Option<String>, path: &Path, key: &Key) {
    if let Some(why) = lost {
        tracing::warn!(
            %key, path = %path.display(), %why,
            "the record of the last hold is lost; the order of fencing tokens now depends on the wall clock"
        );
    }
}

/// Whether a file is too new to have lost a record: another process locked it before its creator. A power failure, which
/// does lose records, takes longer.
fn is_new(born: u64, wall: u64) -> bool {
    born.abs_diff(wall) < 10_000_000
}

impl File {
    pub(super) fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        match self.held_here(&claim.key, &claim.holder.id)? {
            Some(hold) => Ok(Acquire::Granted { tokens: hold.record.fence.into() }),
            None if claim.is_poll() => Ok(Acquire::Gone),
            None => {
                let answer = self.try_claim(claim)?;
                if matches!(answer, Acquire::Granted { .. }) {
                    self.watch.watch_holds();
                }
                Ok(answer)
            }
        }
    }

    /// The end of a hold before the watch started is not reported, so this inspects the key again.
    pub(super) fn watch_for_end(&self, key: &Key) -> Result<(), Unknown> {
        self.watch.subscribe(key);
        if self.inspect_key(key)?.is_free() {
            self.listeners.send(&Event::Changed { key: key.clone() });
        }
        Ok(())
    }

    pub(super) fn renew_one(&self, renewal: &Renewal) -> Result<Renew, Unknown> {
        if let Some(hold) = self.held_here(&renewal.key, &renewal.holder)? {
            if let Err(error) = hold.refresh() {
                tracing::debug!(key = %renewal.key, %error, "the lock file looks unused to programs that delete old files");
            }
            return Ok(Renew::Renewed { waiters: 0 });
        }
        Ok(self.inspect_key(&renewal.key)?.holders().map_or(Renew::Absent, Renew::TakenBy))
    }

    /// Releases even if the check of the file fails: the caller does not retry a release.
    pub(super) fn free(&self, key: &Key, holder: &HolderId) -> Result<Release, Unknown> {
        let here = self.held_here(key, holder);
        if let Some(hold) = self.table.remove(key, holder) {
            self.unlock(&hold)?;
            self.listeners.send(&Event::Changed { key: key.clone() });
            return here.map(|_| Release::Released);
        }
        // The end of a claim that has waited.
        self.marks.remove(key, self.clock.wall_micros());
        here?;
        Ok(self.inspect_key(key)?.holders().map_or(Release::Absent, Release::TakenBy))
    }

    /// Turns an exclusive hold into a shared one. A repeated request finds it shared and returns the same token.
    pub(super) fn make_shared(&self, key: &Key, holder: &HolderId) -> Result<Downgrade, Unknown> {
        for attempt in 0..ROW_TRIES {
            let Some(hold) = self.held_here(key, holder)? else { return self.downgrade_lost(key) };
            match hold.record.mode {
                Mode::Exclusive => {}
                Mode::Shared => return Ok(Downgrade::Downgraded { token: hold.record.fence }),
                _ => return self.downgrade_lost(key),
            }
            let row = Row::of_exclusive(&hold.lock, key);
            if let Some(row) = row.map_err(|error| self.io_error("lock", hold.lock.path(), &error))? {
                return self.enter_from(&hold, row);
            }
            pause(attempt);
        }
        let detail = format!("key {key}: other processes keep the file of its row locked; the lock is still exclusive");
        Err(Unknown::new(self.directory.name(), Fault::Timeout, detail))
    }

    fn enter_from(&self, hold: &HeldFile, row: Row) -> Result<Downgrade, Unknown> {
        let key = &hold.record.key;
        let tokens = next_block(hold.record.fence.get(), self.clock.wall_micros(), NonZeroU32::MIN);
        let tokens = tokens.map_err(|error| self.invalid(&error))?;
        let added = row.add_exclusive(self.record(key, hold.record.holder.clone(), Mode::Shared, tokens));
        let added = added.map_err(|error| {
            // Without it, the exclusive hold would have no record.
            let _ = hold.lock.write(&hold.record);
            self.io_error("write", hold.lock.path(), &error)
        })?;
        let replaced = added.is_some_and(|added| self.table.replace(added));
        if !replaced {
            // Lost during the conversion, or released meanwhile.
            self.table.remove(key, &hold.record.holder.id);
        }
        self.listeners.send(&Event::Changed { key: key.clone() });
        hold.lock.notify_watchers();
        if replaced { Ok(Downgrade::Downgraded { token: tokens.last() }) } else { self.downgrade_lost(key) }
    }

    fn downgrade_lost(&self, key: &Key) -> Result<Downgrade, Unknown> {
        Ok(self.inspect_key(key)?.holders().map_or(Downgrade::Absent, Downgrade::TakenBy))
    }

    fn unlock(&self, hold: &HeldFile) -> Result<(), Unknown> {
        let (key, path) = (&hold.record.key, hold.lock.path());
        let unlocked = hold.unlock(|error| {
            let directory = self.directory.name();
            tracing::warn!(%key, %directory, %error, "cannot record the release in the lock file");
        });
        unlocked.map_err(|error| self.io_error("unlock", path, &error))
    }

    /// The hold of this holder in this process, if its files are still those that other processes would lock.
    pub(super) fn held_here(&self, key: &Key, holder: &HolderId) -> Result<Option<Arc<HeldFile>>, Unknown> {
        let Some(hold) = self.table.get(key, holder) else { return Ok(None) };
        if hold.is_in_place().map_err(|error| self.io_error("inspect", &self.directory.file_of(key), &error))? {
            return Ok(Some(hold));
        }
        if self.table.remove(key, holder).is_some() {
            let directory = self.directory.name();
            tracing::warn!(%key, %directory, "the lock is lost: its file was deleted or replaced while it was held");
            self.listeners.send(&Event::Changed { key: key.clone() });
        }
        Ok(None)
    }

    /// Enters the row as a claim does, so that no permit is granted during the change. Closing the lock file wakes the waiters,
    /// which try again; a process with another limit is then refused.
    pub(super) fn set_limit(&self, key: &Key, limit: u32) -> Result<Resize, Unknown> {
        let (semaphore, path) = (Resize::check(&self.directory.name(), limit)?, self.directory.file_of(key));
        for attempt in 0..ROW_TRIES {
            let seen = self.inspect_key(key)?;
            let Some(holders) = seen.holders() else { return Ok(Resize::Free) };
            let mode = seen.mode().unwrap_or(Mode::Exclusive);
            if mode.limit().is_none() {
                return Ok(Resize::OtherMode { mode, holders });
            }
            let row = Row::open(&path, key).map_err(|error| self.io_error("lock", &path, &error))?;
            // The holders may have released their permits in the meantime.
            if let Some(row) = row
                && let Some(before) = row.slots.holds.mode().and_then(Mode::limit)
            {
                row.resize(semaphore).map_err(|error| self.io_error("resize", &path, &error))?;
                let holds = &row.slots.holds;
                let holders = u32::try_from(holds.iter().count()).unwrap_or(u32::MAX);
                return Ok(Resize::Resized(Resized::new(before, limit, holds.used(), holders)));
            }
            pause(attempt);
        }
        let advice = format!("key {key}: other processes enter and leave the semaphore all the time: try again");
        Err(Unknown::new(self.directory.name(), Fault::Busy, advice))
    }

    /// The kernel ends no hold for another process.
    pub(super) fn refuse(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let now = self.inspect_key(&seen.key)?;
        let listed = now.iter().filter(|record| seen.has(record.holder.id));
        let mut pids: Vec<_> = listed.map(|record| record.pid.to_string()).collect();
        // One process may have several holds.
        pids.dedup();
        let text = match (&pids[..], &now.foreign) {
            ([pid], _) => format!("the kernel holds this lock for process {pid}; end that process to free it"),
            ([_, ..], _) => {
                let pids = pids.join(", ");
                format!("the kernel holds this lock for processes {pids}; end those processes to free it")
            }
            ([], Some(occupant)) if seen.first().holder_id().is_none() => {
                format!("the kernel holds this lock for {occupant}; end that program to free it")
            }
            _ => return Ok(Eviction::Changed(now.holding(&seen.key, self.clock.wall_micros()).map(Box::new))),
        };
        Ok(Eviction::Refused(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_new_for_ten_seconds() {
        assert!(is_new(50_000_000, 59_999_999) && is_new(50_000_000, 40_000_001));
        assert!(!is_new(50_000_000, 60_000_000) && !is_new(u64::MAX, 0));
    }

    #[test]
    fn a_file_that_another_process_created_and_did_not_write_is_empty_and_one_that_was_written_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.lock");
        let made_by_another = std::fs::File::create(&path).unwrap();
        let guard = FlockGuard::take(&path).unwrap().unwrap();
        assert!(!guard.created);
        // Not all file systems store the creation time.
        if let Ok(born) = made_by_another.metadata().unwrap().created() {
            let since = born.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(guard.created_empty_at().map(u128::from), Some(since.as_micros()));
        }
        std::fs::write(&path, "x").unwrap();
        assert_eq!(guard.created_empty_at(), None);
    }
}
