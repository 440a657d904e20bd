//! flock(2), which `std::fs::File` supports only since Rust 1.89.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// The result of an attempt that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TryLock {
    Locked,
    /// Another process has a conflicting lock.
    Refused,
}

pub(super) fn try_exclusive(file: &File) -> io::Result<TryLock> {
    attempt(file, FlockOperation::NonBlockingLockExclusive)
}

pub(super) fn try_shared(file: &File) -> io::Result<TryLock> {
    attempt(file, FlockOperation::NonBlockingLockShared)
}

pub(super) fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

fn attempt(file: &File, operation: FlockOperation) -> io::Result<TryLock> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(TryLock::Locked),
        Err(Errno::WOULDBLOCK) => Ok(TryLock::Refused),
        Err(error) => Err(error.into()),
    }
}
