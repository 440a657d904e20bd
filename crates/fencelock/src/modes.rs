//! The messages about a refused mode.

use fencelock_core::{Holders, Invalid, Key, Mode, Modes};

/// Checks that the backend has the mode, before anything is sent.
pub(crate) fn check(backend: &str, key: &Key, modes: Modes, mode: Mode) -> Result<(), Invalid> {
    if modes.has(mode) {
        return Ok(());
    }
    let (what, advice) = match mode {
        Mode::Permits { .. } => ("semaphores", "use slots, which every backend has, or a backend that has semaphores"),
        _ => ("shared locks", "acquire an exclusive lock, or use a backend that has them"),
    };
    Err(Invalid::new(format!("{backend} has no {what}, so {key} cannot be acquired as {mode}: {advice}")))
}

/// Checks that the backend has a semaphore whose limit could be changed, before anything is sent.
pub(crate) fn check_resize(backend: &str, key: &Key, modes: Modes, mode: Mode) -> Result<(), Invalid> {
    if modes.has(mode) {
        return Ok(());
    }
    let advice = "connect to a backend that has semaphores, or use slots and change their number in all clients";
    Err(Invalid::new(format!("{backend} has no semaphores, so the limit of {key} cannot be resized: {advice}")))
}

/// The key is in use in a mode that conflicts with the requested one.
pub(crate) fn conflict(key: &Key, present: Mode) -> Invalid {
    let class = present.class();
    Invalid::new(format!("{key} is in use as {class}: use the same mode and limit in all clients, or another key"))
}

/// A hold is to be resumed in another mode than it has.
pub(crate) fn other_hold(key: &Key, held: Mode) -> Invalid {
    Invalid::new(format!("{key} is held as {}: resume it in the same mode", held.class()))
}

/// Only an exclusive lock can become a shared one.
pub(crate) fn not_exclusive(key: &Key, mode: Mode) -> Invalid {
    Invalid::new(format!("{key} is held as {mode}: only an exclusive lock can be downgraded"))
}

/// There is no semaphore whose limit could be changed.
pub(crate) fn not_in_use(key: &Key) -> Invalid {
    Invalid::new(format!("{key} is not in use, so there is no limit to change: the next claim sets it"))
}

/// Only semaphores have a limit.
pub(crate) fn no_semaphore(key: &Key, mode: Mode, holders: &Holders) -> Invalid {
    Invalid::new(format!("{key} is held as {mode} by {holders}: only a semaphore that is in use can be resized"))
}
