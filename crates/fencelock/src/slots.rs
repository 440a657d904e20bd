use crate::driver::time_until;
use crate::error::{Error, unreachable};
use crate::guard::Guard;
use crate::held::Held;
use crate::lock::{Lock, run_under, unless_busy};
use crate::run::RunError;
use crate::settings::setters;
use fencelock_core::engine::{AcquireSlot, SlotStep};
use fencelock_core::{HolderId, Invalid, Key};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between two inspections of slots outside of the set, and the pause after all of them were inspected once.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
const LATER_INSPECTION_INTERVAL: Duration = Duration::from_secs(10);

/// Numbered slots that are not acquired yet, from [`Client::slots`](crate::Client::slots). At most as many clients as there are
/// slots hold one of them at the same time.
///
/// Slot `i` of the key `pool` is the exclusive lock `pool#i`, with its own fencing tokens and its own queue. So slots work on every backend,
/// including a quorum, and a resource with numbered parts can check them: one connection, shard or file for each slot, and one
/// [`FenceGate`](crate::FenceGate) for each of them. `inspect`, `list` and `evict` see the locks `pool#0`, `pool#1`, ...
///
/// A claim tries all slots, starting at a random one. If all are held, it waits in the queues of up to eight of them, and tries the others once
/// a second. So there is no common order among waiters.
///
/// All clients must use the same number of slots. A client that uses more holds slots that the others do not know, so more
/// clients than they expect hold one. A client that waits logs a warning about it.
///
/// ```
/// # async fn demo() -> Result<(), fencelock::Error> {
/// let client = fencelock::Client::connect("memory:").await?; // or file:DIR, redis://host, redlock://a,b,c
///
/// let slot = client.slots("pool", 5).acquire().await?;
/// println!("connection {} under token {}", slot.slot(), slot.fencing_token());
/// slot.release().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[must_use = "slots do nothing until one is acquired"]
#[derive(Clone, Debug)]
pub struct Slots {
    /// Its key is that of the set, and the others are those of the lock of each slot. The wait is for any of them.
    pub(crate) lock: Lock,
    slots: u32,
}

impl Slots {
    pub(crate) const fn new(lock: Lock, slots: u32) -> Self {
        Self { lock, slots }
    }

    setters!(Slots in lock.settings);

    /// Checks the key, the number and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key or setting, and for a number that is not within 1 to 1000.
    pub fn check(&self) -> Result<(), Error> {
        AcquireSlot::<Error>::new(self.slots, 0, None, self.lock.client.clock.now())?;
        // The name of the last slot is the longest.
        self.lock_of(self.slots - 1).check()?;
        Ok(())
    }

    /// Waits for a slot, and acquires it.
    ///
    /// # Errors
    /// The errors of [`Lock::acquire`]; [`Error::Busy`] names one of the slots. [`Error::Config`] also for a number of slots that is not
    /// within 1 to 1000.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all queues; a slot that was granted in the meantime is released in the background.
    pub async fn acquire(self) -> Result<SlotGuard, Error> {
        self.check()?;
        let (slot, guard) = self.acquire_one().await?;
        Ok(guard.with(SlotNumber(slot)))
    }

    /// Acquires a slot if one is free and no client waits for it; `None` otherwise.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NotReplicated`], [`Error::Config`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// See [`Slots::acquire`].
    pub async fn try_acquire(self) -> Result<Option<SlotGuard>, Error> {
        unless_busy(self.wait(Duration::ZERO).acquire().await)
    }

    /// Continues a hold of this slot that [`Guard::into_holder`] released from its guard, in this or another process.
    ///
    /// # Errors
    /// See [`Lock::resume`]. [`Error::Config`] also if there is no such slot.
    ///
    /// # Cancel safety
    /// See [`Lock::resume`].
    pub async fn resume(self, slot: u32, holder: HolderId) -> Result<SlotGuard, Error> {
        self.check()?;
        if slot >= self.slots {
            let slots = self.slots;
            return Err(Invalid::new(format!("there is no slot {slot}: the slots are 0 to {}", slots - 1)).into());
        }
        let guard = self.lock_of(slot).resume(holder).await?;
        Ok(guard.with(SlotNumber(slot)))
    }

    /// Runs `body` with the number of a slot while it is held, releases it, and returns the result of the body: see [`Lock::run`].
    ///
    /// # Errors
    /// See [`Lock::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the slot in the background.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, RunError<T, E>>
    where
        F: FnOnce(u32, Held) -> B,
        B: Future<Output = Result<T, E>>,
    {
        run_under(self.acquire().await?, |guard| body(guard.slot(), guard.held())).await
    }
}

impl Slots {
    fn name_of(&self, slot: u32) -> String {
        format!("{}#{slot}", self.lock.key)
    }

    fn lock_of(&self, slot: u32) -> Lock {
        Lock { key: self.name_of(slot), ..self.lock.clone() }
    }

    /// Acquires one slot: executes the steps of [`AcquireSlot`]. If the future is dropped, it leaves all queues, and a granted slot is
    /// released in the background.
    async fn acquire_one(&self) -> Result<(u32, Guard), Error> {
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

/// A held slot: the [`Guard`] of its lock, whose key is `pool#3`, and the number of the slot. Tokens of different slots cannot be
/// compared.
pub type SlotGuard = Guard<SlotNumber>;

/// The number of a held slot, which its guard has: [`SlotGuard::slot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotNumber(u32);

impl SlotGuard {
    /// The number of the slot, from 0. [`Slots::resume`] takes it, with the holder id of [`Guard::into_holder`].
    pub const fn slot(&self) -> u32 {
        self.payload.0
    }
}

/// The claim of one slot. Boxed, because its future is large.
fn claim(lock: Lock, slot: u32) -> BoxFuture<'static, (u32, Result<Guard, Error>)> {
    lock.into_future().map(move |claimed| (slot, claimed)).boxed()
}
