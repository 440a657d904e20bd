//! Executes the steps of [`AcquireSlot`]: claims that do not wait, and claims that wait in several queues at the same time.

use super::ClientInner;
use super::key_task::time_until;
use crate::error::{Error, unreachable};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::slot_set::SlotSet;
use fencelock_core::engine::{AcquireSlot, SlotStep};
use fencelock_core::{Key, Moment};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between two inspections of slots outside of the set, and the pause after all of them were inspected once.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
const LATER_INSPECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The result of a claim of one slot, and whether it has waited in the queue.
type Claimed = (u32, bool, Result<Guard, Error>);

/// Acquires one slot of a set. If the future is dropped, it leaves all queues, and a granted slot is released in the background.
pub(crate) async fn acquire_slot(set: &SlotSet) -> Result<(u32, Guard), Error> {
    let Lock { client, key, settings } = &set.lock;
    let begun = client.clock.now();
    // The remainder is below the number of slots, so it fits.
    let start = u32::try_from(client.rng.next() % u64::from(u32::MAX)).unwrap_or(0);
    let mut slots = AcquireSlot::new(set.slots, start, settings.wait, begun)?;
    let (mut claims, mut trying, mut queues) = (FuturesUnordered::new(), false, false);
    let mut larger_set = pin!(report_larger_set(client, set, start));
    let (mut last, mut answered) = (None::<Error>, 0);
    loop {
        let now = client.clock.now();
        let until = match slots.step(now) {
            SlotStep::Try(slot) => {
                if !std::mem::replace(&mut trying, true) {
                    claims.push(claim(set.lock_of(slot).wait(Duration::ZERO), slot, false));
                }
                slots.end()
            }
            SlotStep::Wait(until) => until,
            // A slot that was granted was returned already.
            SlotStep::Granted(_) | SlotStep::Refused => {
                let waited = now.since(begun);
                return Err(match last {
                    Some(error) => error.after(waited, answered - 1),
                    None => unreachable(Key::new(key).ok().as_ref(), client.timed_out(), waited, 1),
                });
            }
        };
        if !queues {
            let waits = |(index, slot)| claim(waiting(set, &slots, slot, index, now), slot, true);
            claims.extend(slots.queues().enumerate().map(waits));
            queues = slots.queues().next().is_some();
        }
        let (slot, waits, claimed) = tokio::select! {
            Some(claimed) = claims.next() => claimed,
            () = time_until(client, until) => {
                slots.on_time(client.clock.now());
                continue;
            }
            // It runs concurrently with the claims that wait, and never ends.
            never = &mut larger_set, if queues => match never {},
        };
        trying &= waits;
        match claimed {
            // Any other claim is dropped with this call.
            Ok(guard) if slots.on_granted(slot) => return Ok((slot, guard)),
            Ok(guard) => drop(guard),
            Err(error) => {
                let now = client.clock.now();
                on_error(&mut slots, &error, waits, now);
                answered += 1;
                // A holder that was reported before is a better answer than none.
                if last.is_none() || !error.is_silence() || !slots.is_over(now) {
                    last = Some(error);
                }
            }
        }
    }
}

/// A claim that `waits`, or a try, has failed.
fn on_error(slots: &mut AcquireSlot, error: &Error, waits: bool, now: Moment) {
    match error {
        Error::Unreachable { cause, .. } if cause.is_permanent() => slots.on_refused(),
        Error::Busy { .. } | Error::Unreachable { .. } if waits => slots.on_line_ended(),
        Error::Busy { .. } => slots.on_busy(now),
        Error::Unreachable { .. } => slots.on_unanswered(now),
        _ => slots.on_refused(),
    }
}

/// Boxed, because the future of a claim is large.
fn claim(lock: Lock, slot: u32, waits: bool) -> BoxFuture<'static, Claimed> {
    lock.into_future().map(move |claimed| (slot, waits, claimed)).boxed()
}

/// A claim that waits in a queue. Only the first one reports to the caller.
fn waiting(set: &SlotSet, slots: &AcquireSlot, slot: u32, index: usize, now: Moment) -> Lock {
    let mut lock = set.lock_of(slot);
    lock.settings.wait = slots.rest(now);
    if index > 0 {
        (lock.settings.on_wait, lock.settings.on_trouble) = (None, None);
    }
    lock
}

/// Warns about a client that uses more slots of the same key: the two clients do not limit each other correctly. The holder of a
/// slot outside of this set shows such a client. As many slots as there are in the set are inspected, one after another.
async fn report_larger_set(client: &ClientInner, set: &SlotSet, start: u32) -> Infallible {
    for count in 0.. {
        let beyond = set.slots + (start % set.slots + count % set.slots) % set.slots;
        let seen = match Key::new(set.name_of(beyond)) {
            Ok(key) => client.backend.inspect(&key).await,
            Err(_) => Ok(None),
        };
        if let Ok(Some(seen)) = seen {
            tracing::warn!(
                key = set.lock.key, slots = set.slots, holders = %fencelock_core::Occupied::from(seen).holders,
                "another client uses more slots of this key: all clients must use the same number"
            );
            break;
        }
        sleep(if count < set.slots { INSPECTION_INTERVAL } else { LATER_INSPECTION_INTERVAL }).await;
    }
    std::future::pending().await
}
