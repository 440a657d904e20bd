use crate::driver::time_until;
use crate::error::{Error, unreachable};
use crate::guard::Guard;
use crate::lock::Lock;
use fencelock_core::Key;
use fencelock_core::engine::{AcquireSlot, SlotStep};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between two inspections of slots outside of the set, and the pause after all of them were inspected once.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
const LATER_INSPECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The settings of a claim.
#[derive(Clone, Debug)]
pub(crate) struct SlotSet {
    /// Its key is that of the set, and the others are those of the lock of each slot. The wait is for any of them.
    pub(crate) lock: Lock,
    pub(crate) slots: u32,
}

impl SlotSet {
    pub(crate) fn name_of(&self, slot: u32) -> String {
        format!("{}#{slot}", self.lock.key)
    }

    pub(crate) fn lock_of(&self, slot: u32) -> Lock {
        Lock { key: self.name_of(slot), ..self.lock.clone() }
    }

    /// Acquires one slot: executes the steps of [`AcquireSlot`]. If the future is dropped, it leaves all queues, and a granted slot is
    /// released in the background.
    pub(crate) async fn acquire(&self) -> Result<(u32, Guard), Error> {
        let Lock { client, key, settings } = &self.lock;
        // The remainder is below the number of slots, so it fits.
        let start = u32::try_from(client.rng.next() % u64::from(u32::MAX)).unwrap_or(0);
        let mut slots = AcquireSlot::<Error>::new(self.slots, start, settings.wait, client.clock.now())?;
        let (mut claims, mut failed) = (FuturesUnordered::new(), 0);
        let mut larger_set = pin!(self.report_larger_set(start));
        loop {
            let now = client.clock.now();
            let until = match slots.step(now) {
                SlotStep::Try(slot) => {
                    claims.push(claim(self.lock_of(slot).wait(Duration::ZERO), slot));
                    continue;
                }
                SlotStep::Queue { slot, wait, reports } => {
                    claims.push(claim(self.waiting(slot, wait, reports), slot));
                    continue;
                }
                SlotStep::Wait(until) => until,
                // A slot that was granted was returned already.
                SlotStep::Granted(_) | SlotStep::Refused => {
                    let waited = slots.waited(now);
                    return Err(match slots.into_error() {
                        Some(error) => error.after(waited, failed - 1),
                        None => unreachable(Key::new(key).ok().as_ref(), client.timed_out(), waited, 1),
                    });
                }
            };
            tokio::select! {
                Some((slot, claimed)) = claims.next() => match claimed {
                    // Any other claim is dropped with this call.
                    Ok(guard) if slots.on_granted(slot) => return Ok((slot, guard)),
                    Ok(guard) => drop(guard),
                    Err(error) => {
                        failed += 1;
                        slots.on_failed(slot, error.of_claim(settings.ttl), error, client.clock.now());
                    }
                },
                () = time_until(client, until) => slots.on_time(client.clock.now()),
                // It runs concurrently with the claims that wait, and never ends.
                never = &mut larger_set, if slots.is_queued() => match never {},
            }
        }
    }

    /// A claim that waits in a queue.
    fn waiting(&self, slot: u32, wait: Option<Duration>, reports: bool) -> Lock {
        let mut lock = self.lock_of(slot);
        lock.settings.wait = wait;
        if !reports {
            (lock.settings.on_wait, lock.settings.on_trouble) = (None, None);
        }
        lock
    }

    /// Warns about a client that uses more slots of the same key: the two clients do not limit each other correctly. The holder of a
    /// slot outside of this set shows such a client. As many slots as there are in the set are inspected, one after another.
    async fn report_larger_set(&self, start: u32) -> Infallible {
        for count in 0.. {
            let beyond = self.slots + (start % self.slots + count % self.slots) % self.slots;
            let seen = match Key::new(self.name_of(beyond)) {
                Ok(key) => self.lock.client.backend.inspect(&key).await,
                Err(_) => Ok(None),
            };
            if let Ok(Some(seen)) = seen {
                tracing::warn!(
                    key = self.lock.key, slots = self.slots, holders = %fencelock_core::Occupied::from(seen).holders,
                    "another client uses more slots of this key: all clients must use the same number"
                );
                break;
            }
            sleep(if count < self.slots { INSPECTION_INTERVAL } else { LATER_INSPECTION_INTERVAL }).await;
        }
        std::future::pending().await
    }
}

/// The claim of one slot. Boxed, because its future is large.
fn claim(lock: Lock, slot: u32) -> BoxFuture<'static, (u32, Result<Guard, Error>)> {
    lock.into_future().map(move |claimed| (slot, claimed)).boxed()
}
