//! The errors of a mode that is refused, with their messages.

use super::Error;
use fencelock_core::{Holders, Invalid, Key, Mode, Modes};

/// Checks that the backend has the mode, before anything is sent.
pub(crate) fn check(backend: &str, key: &Key, modes: Modes, mode: Mode) -> Result<(), Error> {
    if modes.has(mode) {
        return Ok(());
    }
    let what = if mode.limit().is_some() { "semaphores" } else { "shared locks" };
    let (because, advice) = (modes.because, mode.alternative());
    let reason = format!("{backend} has no {what}{because}, so {key} cannot be acquired as {mode}: {advice}");
    Err(unsupported(key, mode, reason))
}

/// Checks that the backend has a semaphore whose limit could be changed, before anything is sent.
pub(crate) fn check_resize(backend: &str, key: &Key, modes: Modes, mode: Mode) -> Result<(), Error> {
    if modes.has(mode) {
        return Ok(());
    }
    let advice = "connect to a backend that has semaphores, or use slots and change their number in all clients";
    let reason = format!("{backend} has no semaphores, so the limit of {key} cannot be resized: {advice}");
    Err(unsupported(key, mode, reason))
}

/// The key is in use in a mode that conflicts with the requested one.
pub(crate) fn conflict(key: &Key, present: Mode, requested: Mode) -> Error {
    let class = present.class();
    let resize = match (present.limit(), requested.limit()) {
        (Some(_), Some(limit)) => format!("; to change the limit: fencelock resize --permits {limit} {key}"),
        _ => String::new(),
    };
    let advice = "use the same mode and limit in all clients, or another key";
    conflicting(key, present, format!("{key} is in use as {class}: {advice}{resize}"))
}

/// A hold is to be resumed in another mode than it has.
pub(crate) fn other_hold(key: &Key, held: Mode) -> Error {
    let what = if held.limit().is_some() { held.to_string() } else { held.class() };
    conflicting(key, held, format!("{key} is held as {what}: resume it in the same mode"))
}

/// Only an exclusive lock can become a shared one.
pub(crate) fn not_exclusive(key: &Key, mode: Mode) -> Error {
    // Not its limit: the semaphore may have been resized.
    conflicting(key, mode, format!("{key} is held as a semaphore: only an exclusive lock can be downgraded"))
}

/// Only semaphores have a limit.
pub(crate) fn no_semaphore(key: &Key, mode: Mode, holders: &Holders) -> Error {
    let reason = format!("{key} is held as {mode} by {holders}: only a semaphore that is in use can be resized");
    conflicting(key, mode, reason)
}

/// There is no semaphore whose limit could be changed.
pub(crate) fn not_in_use(key: &Key) -> Invalid {
    Invalid::new(format!("{key} is not in use, so there is no limit to change: the next claim sets it"))
}

fn unsupported(key: &Key, mode: Mode, reason: String) -> Error {
    Error::ModeUnsupported { key: key.clone(), mode, reason: Invalid::new(reason) }
}

fn conflicting(key: &Key, present: Mode, reason: String) -> Error {
    Error::ModeConflict { key: key.clone(), present, reason: Invalid::new(reason) }
}
