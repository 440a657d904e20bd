//! Semaphores: a counter of free permits, or a sorted set of permits with their ends.

use super::LockModel;
use super::state::{CLIENTS, Entry, Reply, TTL, Transition, Value};

/// The server to which a client sends its `nth` request.
pub(crate) const fn node_of(client: usize, nth: u8) -> usize {
    (client + nth as usize) % CLIENTS
}

/// Takes a permit from the counter of a server.
pub(super) fn count_down(model: &LockModel<'_>, step: &mut Transition, at: usize, node: usize) -> bool {
    let left = match step.after.keys[node].map(|entry| entry.value) {
        Some(Value::Count(left)) => left,
        _ => model.scheme.permits,
    };
    step.reply = Reply::Int((left > 0).into());
    if left > 0 {
        step.after.keys[node] = Some(Entry { value: Value::Count(left - 1), ttl: None, owner: at as u8 });
    }
    left > 0
}

pub(super) fn take_count(model: &LockModel<'_>, step: &mut Transition, at: usize) -> bool {
    let taken = count_down(model, step, at, 0);
    if taken {
        model.take(&mut step.after, at);
    }
    taken
}

/// Removes what has ended by this clock, and takes a permit.
pub(super) fn take_permit(model: &LockModel<'_>, step: &mut Transition, at: usize, now: u8) -> bool {
    let mut ends = ends(step);
    for (holder, end) in ends.iter_mut().enumerate() {
        if *end > 0 && *end <= now {
            *end = 0;
            step.touch(at, holder as u8);
        }
    }
    let taken = ends.iter().filter(|end| **end > 0).count() < usize::from(model.scheme.permits);
    if taken {
        ends[at] = now + TTL;
        model.take(&mut step.after, at);
    }
    put(step, ends);
    step.reply = Reply::Int(taken.into());
    taken
}

pub(super) fn give_count(step: &mut Transition, node: usize) -> bool {
    let Some(Entry { value: Value::Count(left), .. }) = &mut step.after.keys[node] else { return false };
    *left += 1;
    step.reply = Reply::Int(*left as i8);
    true
}

pub(super) fn give_permit(step: &mut Transition, at: usize) -> bool {
    let mut ends = ends(step);
    let was_there = std::mem::take(&mut ends[at]) > 0;
    put(step, ends);
    step.reply = Reply::Int(was_there.into());
    was_there
}

const fn ends(step: &Transition) -> [u8; CLIENTS] {
    match step.after.keys[0] {
        Some(Entry { value: Value::Ends(ends), .. }) => ends,
        _ => [0; CLIENTS],
    }
}

/// Redis has no empty sorted set.
fn put(step: &mut Transition, ends: [u8; CLIENTS]) {
    let first = ends.iter().position(|end| *end > 0);
    step.after.keys[0] = first.map(|owner| Entry { value: Value::Ends(ends), ttl: None, owner: owner as u8 });
}
