//! Claims a lock file and finds its holder. Every step takes microseconds unless another process is in the way.

use super::File;
use super::flock_guard::{FlockGuard, Probe, probe, tighten_file};
use super::record::{Damage, Record, RecordState};
use super::table::HeldFile;
use fencelock_core::{Acquire, Claim, Expiry, Fault, Foreign, Intent, Key, Occupant, Occupied, TokenBlock, Unknown};
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The number of attempts at a lock without an exclusive holder until it is assumed to be shared permanently. With the
/// pauses of [`pause`] this takes about 33 ms: a process that probes the lock may be interrupted.
const TRIES: u32 = 24;

/// The number of reads of a locked file without a record of its holder: about 1.5 ms, much longer than a holder needs
/// to write its record after locking, or to unlock after its last write.
const READS: u32 = 5;

/// The state of a lock, as far as this process knows.
#[derive(Debug)]
pub(super) enum LockState {
    Free,
    Held(Box<Record>),
    /// The file is locked, and no record names the holder.
    Foreign(Occupant),
}

impl LockState {
    pub(super) fn occupant(self) -> Option<Occupant> {
        match self {
            Self::Free => None,
            Self::Held(record) => Some(Occupant::Holder(record.holder)),
            Self::Foreign(occupant) => Some(occupant),
        }
    }

    /// The holder and the duration of the hold, at `wall` microseconds.
    fn occupied(self, wall: u64) -> Option<Occupied> {
        match self {
            Self::Held(record) => Some(record.holding(wall).into()),
            seen => seen.occupant().map(|by| Occupied::new(by, Expiry::Never)),
        }
    }
}

/// 50, 100, 200, 400, 800 us, then 1.6 ms each.
fn pause(attempt: u32) {
    thread::sleep(Duration::from_micros(50 << attempt.min(5)));
}

impl File {
    /// Acquires the key, or returns the holder.
    ///
    /// A refused exclusive lock proves nothing: another process may only have probed it. So the answer is "busy" only if a
    /// shared lock was refused too; otherwise the attempt is repeated.
    pub(super) fn try_claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let path = self.directory.file_of(&claim.key);
        for attempt in 0..TRIES {
            let seen = self.inspect_key(&claim.key)?;
            if matches!(seen, LockState::Foreign(_)) {
                // The file may be locked because its permissions were too open.
                tighten_file(&path);
            }
            if let Some(occupied) = seen.occupied(self.clock.wall_micros()) {
                if claim.intent == Intent::Enqueue && self.watch.subscribe(&claim.key) {
                    // The lock may have been released between the probe and the watch.
                    continue;
                }
                return Ok(Acquire::Busy(occupied));
            }
            if let Some(tokens) = self.take(claim, &path)? {
                return Ok(Acquire::Granted { tokens });
            }
            pause(attempt);
        }
        let by = foreign("a shared lock", &path);
        Ok(Acquire::Busy(Occupied::new(by, Expiry::Never)))
    }

    /// The current holder of the key.
    pub(super) fn inspect_key(&self, key: &Key) -> Result<LockState, Unknown> {
        self.inspect_file(&self.directory.file_of(key), |record| record.key == *key)
    }

    /// The current holder of the lock on this file, if its record belongs to it.
    pub(super) fn inspect_file(&self, path: &Path, belongs: impl Fn(&Record) -> bool) -> Result<LockState, Unknown> {
        for attempt in 0..READS {
            match probe(path).map_err(|error| self.io_error("inspect", path, &error))? {
                Probe::Free => return Ok(LockState::Free),
                Probe::Held(Ok(record)) if record.state == RecordState::Held && belongs(&record) => {
                    return Ok(LockState::Held(Box::new(record)));
                }
                Probe::Held(_) => pause(attempt),
            }
        }
        Ok(LockState::Foreign(foreign("a lock", path)))
    }

    fn take(&self, claim: &Claim, path: &Path) -> Result<Option<TokenBlock>, Unknown> {
        let guard = match FlockGuard::take(path) {
            Ok(Some(guard)) => guard,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The directory was deleted; the next attempt finds the new one.
                self.directory.create()?;
                return Ok(None);
            }
            Err(error) => return Err(self.io_error("lock", path, &error)),
        };
        let (record, tokens) = self.next_record(&guard, claim, path)?;
        guard.write(&record).map_err(|error| self.io_error("write", path, &error))?;
        self.table.insert(HeldFile { record, guard });
        Ok(Some(tokens))
    }

    /// The record of the new hold, and its tokens, above those of the previous hold. The record contains the last token.
    fn next_record(&self, guard: &FlockGuard, claim: &Claim, path: &Path) -> Result<(Record, TokenBlock), Unknown> {
        let previous = match guard.read().map_err(|error| self.io_error("read", path, &error))? {
            Ok(record) => record.fence.get(),
            Err(_) if guard.created => 0,
            // The process that created the file waits for this one.
            Err(_) if guard.created_empty_at().is_some_and(|born| is_new(born, self.clock.wall_micros())) => 0,
            Err(Damage(why)) => {
                tracing::warn!(
                    key = %claim.key, path = %path.display(), %why,
                    "the record of the last hold is lost; the order of fencing tokens now depends on the wall clock"
                );
                0
            }
        };
        let wall = self.clock.wall_micros();
        let tokens = claim
            .next_block(previous, wall)
            .map_err(|error| Unknown::new(self.directory.name(), Fault::Other, error.to_string()))?;
        let record = Record {
            state: RecordState::Held,
            key: claim.key.clone(),
            holder: claim.holder.clone(),
            fence: tokens.last(),
            since: wall,
            pid: std::process::id(),
        };
        Ok((record, tokens))
    }
}

/// Whether a file is too new to have lost a record: another process locked it before its creator. A power failure, which
/// does lose records, takes longer.
fn is_new(born: u64, wall: u64) -> bool {
    born.abs_diff(wall) < 10_000_000
}

/// A holder that writes no records: `flock(1)`, or another program.
fn foreign(what: &str, path: &Path) -> Occupant {
    Occupant::Foreign(Foreign::other(format!("{what} on {}", path.display())))
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
        // Not all file systems store it.
        if let Ok(born) = made_by_another.metadata().unwrap().created() {
            let since = born.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(guard.created_empty_at().map(u128::from), Some(since.as_micros()));
        }
        std::fs::write(&path, "x").unwrap();
        assert_eq!(guard.created_empty_at(), None);
    }
}
