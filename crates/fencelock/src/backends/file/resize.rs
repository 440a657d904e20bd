//! Changes the limit of a semaphore.

use super::File;
use super::inspect::{LockState, pause};
use super::row::Row;
use fencelock_core::{Fault, Holders, Key, Mode, Resize, Resized, Unknown};

/// The number of attempts to enter the row, about 100 ms: processes enter it one after another.
const TRIES: u32 = 64;

impl File {
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
        Err(Unknown::new(self.directory.name(), Fault::Busy, advice).unsent())
    }
}
