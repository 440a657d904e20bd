//! A lock for readers and writers in one hash with one TTL.

use super::LockModel;
use super::state::{Entry, ReadWrite, Reply, TTL, Transition, Value};

/// A reader holds the lock for twice the TTL of a writer.
pub(super) const READ_TTL: u8 = 2 * TTL;

pub(super) fn write_lock(model: &LockModel<'_>, step: &mut Transition, at: usize) -> bool {
    let (mut lock, ttl) = present(step);
    let again = lock.writer == Some(at as u8);
    let granted = again || lock.is_empty();
    step.reply = Reply::Int(granted.into());
    if granted {
        (lock.writer, lock.writes) = (Some(at as u8), lock.writes + 1);
        put(step, at, lock, ttl.max(TTL));
        if !again {
            model.take(&mut step.after, at);
        }
        let lease = &mut step.after.clients[at].lease;
        *lease = TTL.max(*lease);
    }
    granted
}

pub(super) fn read_lock(step: &mut Transition, at: usize) -> bool {
    let (mut lock, ttl) = present(step);
    let granted = lock.writer.is_none_or(|writer| writer == at as u8);
    step.reply = Reply::Int(granted.into());
    if granted {
        lock.readers[at] = true;
        put(step, at, lock, ttl.max(READ_TTL));
        step.after.clients[at].lease = READ_TTL;
    }
    granted
}

pub(super) fn end_write(step: &mut Transition, at: usize, keeps_ttl: bool) -> bool {
    let (mut lock, ttl) = present(step);
    let held = lock.writer == Some(at as u8);
    step.reply = Reply::Int(held.into());
    if held {
        lock.writes -= 1;
        let still_writes = lock.writes > 0;
        lock.writer = lock.writer.filter(|_| still_writes);
        let ttl = if still_writes && !keeps_ttl { TTL } else { ttl };
        put(step, at, lock, if still_writes { ttl.max(TTL) } else { ttl });
    }
    held
}

pub(super) fn read_unlock(step: &mut Transition, at: usize) -> bool {
    let (mut lock, ttl) = present(step);
    let held = std::mem::take(&mut lock.readers[at]);
    step.reply = Reply::Int(held.into());
    if held {
        put(step, at, lock, ttl);
    }
    held
}

fn present(step: &Transition) -> (ReadWrite, u8) {
    match step.after.keys[0] {
        Some(Entry { value: Value::ReadWrite(lock), ttl: Some(ttl), .. }) => (lock, ttl),
        _ => (ReadWrite::default(), 0),
    }
}

/// The last holder deletes the key.
fn put(step: &mut Transition, at: usize, lock: ReadWrite, ttl: u8) {
    let entry = Entry { value: Value::ReadWrite(lock), ttl: Some(ttl), owner: lock.writer.unwrap_or(at as u8) };
    step.after.keys[0] = (!lock.is_empty()).then_some(entry);
}
