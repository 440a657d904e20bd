//! The keys that this process holds, from grant to release.

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

    /// The end of a hold before the watch started is not reported, so this inspects the key again.
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

    /// Releases even if the check of the file fails: the caller does not retry a release.
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

    /// The kernel lock decides, not the record: it is released even if the record cannot be written.
    fn unlock(&self, key: &Key, hold: &HeldFile) -> Result<(), Unknown> {
        if let Err(error) = hold.guard.write(&hold.record.freed()) {
            let directory = self.directory.name();
            tracing::warn!(%key, %directory, %error, "cannot record the release in the lock file");
        }
        hold.guard.unlock().map_err(|error| self.io_error("unlock", &self.directory.file_of(key), &error))
    }

    /// The hold of this process, if its file is still the one that other processes would lock.
    pub(super) fn held_here(&self, key: &Key) -> Result<Option<Arc<HeldFile>>, Unknown> {
        let Some(hold) = self.table.get(key) else { return Ok(None) };
        let in_place = hold.guard.is_in_place();
        if in_place.map_err(|error| self.io_error("inspect", &self.directory.file_of(key), &error))? {
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
