//! The keys that this process holds, from grant to release.

use super::File;
use super::inspect::{LockState, pause};
use super::row::Row;
use super::table::HeldFile;
use fencelock_core::{
    Acquire, Claim, Downgrade, Event, Eviction, Fault, HolderId, Holders, Holding, Key, Mode, Release, Renew, Renewal,
    Resize, Resized, Unknown, next_block,
};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The number of attempts of a downgrade and a change of the limit to enter the row, about 100 ms: processes enter it one after
/// another, and readers whose claims are refused may hold the lock for a moment.
const TRIES: u32 = 64;

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
        if matches!(self.inspect_key(key)?, LockState::Free) {
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
        for attempt in 0..TRIES {
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
        let replaced = added.and_then(|added| self.table.replace(added)).is_some();
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
        for attempt in 0..TRIES {
            let mode = match self.inspect_key(key)? {
                LockState::Free => return Ok(Resize::Free),
                LockState::Foreign(by) => {
                    return Ok(Resize::OtherMode { mode: Mode::Exclusive, holders: Holders::one(by) });
                }
                LockState::Held(holds) => match (holds.mode(), holds.holders()) {
                    (Some(mode), Some(holders)) if mode.limit().is_none() => {
                        return Ok(Resize::OtherMode { mode, holders });
                    }
                    (mode, _) => mode,
                },
            };
            let row = Row::open(&path, key).map_err(|error| self.io_error("lock", &path, &error))?;
            // The holders may have released their permits in the meantime.
            if let (Some(row), true) = (row, mode.is_some())
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
        let text = match &now {
            LockState::Held(holds) if holds.iter().any(|record| seen.has(record.holder.id)) => {
                let listed = holds.iter().filter(|record| seen.has(record.holder.id));
                let mut pids: Vec<_> = listed.map(|record| record.pid.to_string()).collect();
                // One process may have several holds.
                pids.dedup();
                match &pids[..] {
                    [pid] => format!("the kernel holds this lock for process {pid}; end that process to free it"),
                    pids => {
                        let pids = pids.join(", ");
                        format!("the kernel holds this lock for processes {pids}; end those processes to free it")
                    }
                }
            }
            LockState::Foreign(occupant) if seen.first().holder_id().is_none() => {
                format!("the kernel holds this lock for {occupant}; end that program to free it")
            }
            _ => return Ok(Eviction::Changed(now.holding(&seen.key, self.clock.wall_micros()).map(Box::new))),
        };
        Ok(Eviction::Refused(text))
    }
}
