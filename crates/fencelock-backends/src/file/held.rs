//! From grant to release: what this process holds, as long as its files stay in place.

use super::File;
use super::claim::LockState;
use super::table::HeldFile;
use fencelock_core::{Acquire, Claim, Event, HolderId, Intent, Key, Occupant, Release, Renew, Renewal, Unknown};
use std::sync::Arc;

impl File {
    pub(super) fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        match self.held_here(&claim.key)? {
            Some(hold) if hold.record.holder.id == claim.holder.id => {
                return Ok(Acquire::Granted { tokens: hold.record.fence.into() });
            }
            _ if claim.intent == Intent::Poll => return Ok(Acquire::Gone),
            Some(hold) => return Ok(Acquire::Busy(hold.record.clone().holding(self.clock.wall_micros()).into())),
            None => {}
        }
        self.try_claim(claim)
    }

    /// An end between the look of whoever asks and the watch was not told, so it looks once more.
    pub(super) fn watch_for_end(&self, key: &Key) -> Result<(), Unknown> {
        self.watch.subscribe(key);
        if matches!(self.inspect_key(key)?, LockState::Free) {
            self.listeners.send(&Event::Changed { key: key.clone() });
        }
        Ok(())
    }

    pub(super) fn renew_one(&self, renewal: &Renewal) -> Result<Renew, Unknown> {
        match self.held_here(&renewal.key)? {
            Some(hold) if hold.record.holder.id == renewal.holder => Ok(Renew::Renewed { waiters: 0 }),
            Some(hold) => Ok(Renew::TakenBy(Occupant::Holder(hold.record.holder.clone()).into())),
            None => {
                Ok(self.inspect_key(&renewal.key)?.occupant().map_or(Renew::Absent, |by| Renew::TakenBy(by.into())))
            }
        }
    }

    /// Lets go even if it cannot be told whether the file is still in place: the guard is gone, nobody would ask again.
    pub(super) fn free(&self, key: &Key, holder: &HolderId) -> Result<Release, Unknown> {
        let here = self.held_here(key);
        if let Some(hold) = self.table.remove(key, holder) {
            self.unlock(key, &hold)?;
            self.listeners.send(&Event::Changed { key: key.clone() });
            return here.map(|_| Release::Released);
        }
        here?;
        Ok(self.inspect_key(key)?.occupant().map_or(Release::Absent, |by| Release::TakenBy(by.into())))
    }

    /// The record is a courtesy, the lock is the truth: it is let go whatever becomes of the record.
    fn unlock(&self, key: &Key, hold: &HeldFile) -> Result<(), Unknown> {
        if let Err(error) = hold.guard.write(&hold.record.freed()) {
            let directory = self.directory.name();
            tracing::warn!(%key, %directory, %error, "the release could not be noted in the lock file");
        }
        hold.guard.unlock().map_err(|error| self.io_error("unlock", &self.directory.file_of(key), &error))
    }

    /// This process's hold of a key, if its file is still the one that others would lock.
    fn held_here(&self, key: &Key) -> Result<Option<Arc<HeldFile>>, Unknown> {
        let Some(hold) = self.table.get(key) else { return Ok(None) };
        let in_place = hold.guard.is_in_place();
        if in_place.map_err(|error| self.io_error("look at", &self.directory.file_of(key), &error))? {
            return Ok(Some(hold));
        }
        if self.table.remove(key, &hold.record.holder.id).is_some() {
            let directory = self.directory.name();
            tracing::warn!(%key, %directory, "the lock is lost: its file was deleted or replaced while it was held");
            self.listeners.send(&Event::Changed { key: key.clone() });
        }
        Ok(None)
    }
}
