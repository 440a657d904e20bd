//! Lists the holders of all keys.

use super::File;
use super::inspect::LockState;
use super::name::{SUFFIX, file_name, key_of};
use super::record::Record;
use fencelock_core::{Eviction, Expiry, HolderInfo, Holding, Key, Unknown};
use std::{fs, io};

/// The number of unreadable files that are named in the log; other users of the directory may create more.
const NAMED: usize = 5;

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: usize,
    pub(super) held: Vec<Holding>,
    /// The number of unreadable files, and the reasons for the first of them.
    pub(super) skipped: usize,
    pub(super) reasons: Vec<Unknown>,
}

impl Scan {
    fn skip(&mut self, why: Unknown) {
        self.skipped += 1;
        if self.reasons.len() < NAMED {
            self.reasons.push(why);
        }
    }

    /// The holds; a warning reports skipped files.
    pub(super) fn into_held(self) -> Vec<Holding> {
        for why in &self.reasons {
            tracing::warn!("skipped: {why}");
        }
        if self.skipped > self.reasons.len() {
            tracing::warn!("skipped: {} more lock files", self.skipped - self.reasons.len());
        }
        self.held
    }
}

impl File {
    pub(super) fn holding(&self, key: &Key, seen: LockState) -> Option<Holding> {
        match seen {
            LockState::Free => None,
            LockState::Held(holds) => holds.holding(key, self.clock.wall_micros()),
            LockState::Foreign(by) => Some(Holding::new(key.clone(), HolderInfo::new(by, Expiry::Never))),
        }
    }

    /// The number of lock files, and the held ones. A foreign lock on a file with an unknown key is omitted, because it has no
    /// name. An unreadable file, such as a symbolic link, is skipped.
    pub(super) fn scan(&self) -> Result<Scan, Unknown> {
        let unreadable = |error: io::Error| self.directory.unknown("cannot list this directory", &error);
        let mut scan = Scan::default();
        if self.directory.is_missing() {
            tracing::debug!(directory = %self.directory.name(), "does not exist: there are no locks yet");
            return Ok(scan);
        }
        for entry in fs::read_dir(self.directory.path()).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) else { continue };
            scan.files += 1;
            let belongs = |record: &Record| file_name(&record.key) == name;
            let seen = match self.inspect_file(&self.directory.path().join(name), belongs) {
                Ok(seen) => seen,
                Err(unknown) => {
                    scan.skip(unknown);
                    continue;
                }
            };
            // The name of a long key is only in the records.
            let key = match &seen {
                LockState::Held(holds) => holds.iter().next().map(|record| record.key.clone()),
                _ => key_of(name),
            };
            scan.held.extend(key.and_then(|key| self.holding(&key, seen)));
        }
        Ok(scan)
    }

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
            _ => return Ok(Eviction::Changed(self.holding(&seen.key, now).map(Box::new))),
        };
        Ok(Eviction::Refused(text))
    }
}
