//! Who holds what, seen from any process.

use super::File;
use super::contend::Seen;
use super::name::{SUFFIX, file_name, key_of};
use super::record::Record;
use fencelock_core::{Eviction, Expiry, Holding, Key, Unknown};
use std::{fs, io};

impl File {
    pub(super) fn holding(&self, key: &Key, seen: Seen) -> Option<Holding> {
        match seen {
            Seen::Held(record) => Some(record.holding(self.clock.wall_micros())),
            seen => seen.occupant().map(|occupant| Holding::new(key.clone(), occupant, Expiry::Never)),
        }
    }

    /// How many lock files there are, and what is held of them. A foreign lock on a file whose key can be read from
    /// nowhere is left out: there is no name to give it.
    pub(super) fn survey(&self) -> Result<(usize, Vec<Holding>), Unknown> {
        let unreadable = |error: io::Error| self.directory.unknown("cannot list this directory", &error);
        let (mut files, mut held) = (0, Vec::new());
        for entry in fs::read_dir(self.directory.path()).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) else { continue };
            files += 1;
            let belongs = |record: &Record| file_name(&record.key) == name;
            match (self.look_at(&self.directory.path().join(name), belongs)?, key_of(name)) {
                (Seen::Free, _) => {}
                (Seen::Held(record), _) => held.push(record.holding(self.clock.wall_micros())),
                (seen, Some(key)) => held.extend(self.holding(&key, seen)),
                (_, None) => {}
            }
        }
        Ok((files, held))
    }

    pub(super) fn refuse(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let now = self.look(&seen.key)?;
        let text = match &now {
            Seen::Held(record) if Some(record.holder.id) == seen.occupant.holder_id() => {
                format!("the kernel holds this lock for process {}; end that process to free it", record.pid)
            }
            Seen::Foreign(occupant) if seen.occupant.holder_id().is_none() => {
                format!("the kernel holds this lock for {occupant}; end that program to free it")
            }
            _ => return Ok(Eviction::Changed(self.holding(&seen.key, now).map(Box::new))),
        };
        Ok(Eviction::Refused(text))
    }
}
