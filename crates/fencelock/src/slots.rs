use crate::driver::time_until;
use crate::error::{Error, unreachable};
use crate::guard::{Guard, Held};
use crate::lock::{Lock, run_under, unless_busy};
use crate::run::RunError;
use crate::settings::{Callbacks, setters};
use fencelock_core::engine::{AfterTry, ClaimFailure, LAST_ANSWER, SlotOrder, WaitLimit};
use fencelock_core::{HolderId, Invalid, Key, Moment, lock};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::ops::ControlFlow::{Break, Continue};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How often a waiting client tries the slots whose queues it is not in.
const RETRY: Duration = Duration::from_secs(1);
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
    pub(crate) slots: u32,
}

impl Slots {
    setters!(Slots in lock.settings);

    /// Checks the key, the number and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key or setting, and for a number that is not within 1 to 1000.
    pub fn check(&self) -> Result<(), Error> {
        SlotOrder::new(self.slots, 0)?;
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

    /// Acquires one slot. If the future is dropped, it leaves all queues, and a granted slot is released in the background.
    async fn acquire_one(&self) -> Result<(u32, Guard), Error> {
        let Lock { client, key, settings } = &self.lock;
        // The remainder is below the number of slots, so it fits.
        let start = u32::try_from(client.rng.next() % u64::from(u32::MAX)).unwrap_or(0);
        let order = SlotOrder::new(self.slots, start)?;
        let wait = WaitLimit::new(settings.wait, client.clock.now());
        let attempt = Attempt { slots: self, order, wait, failed: Mutex::default() };
        let acquired = tokio::select! {
            biased;
            acquired = attempt.acquire(self.report_larger_set(start)) => acquired,
            // When the wait is over, the claims in queues end by themselves: cancelling them at the same moment would leave twice.
            () = time_until(client, wait.end() + LAST_ANSWER) => None,
        };
        acquired.ok_or_else(|| {
            let waited = wait.waited(client.clock.now());
            match attempt.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                (Some(error), claims) => error.after(waited, claims - 1),
                (None, _) => unreachable(Key::new(key).ok().as_ref(), client.timed_out(), waited, 1),
            }
        })
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

/// An acquisition of one slot. The first grant wins: the other claims are dropped with it, which leaves their queues and releases a
/// grant that has already arrived.
struct Attempt<'a> {
    slots: &'a Slots,
    order: SlotOrder,
    wait: WaitLimit,
    /// The error to return, and the number of claims that have failed.
    failed: Mutex<(Option<Error>, u32)>,
}

impl Attempt<'_> {
    /// Tries all slots, and then waits in the queues of the first of them; `None` if the wait is over or a claim was refused.
    async fn acquire(&self, larger_set: impl Future<Output = Infallible>) -> Option<(u32, Guard)> {
        match self.pass(self.order.all()).await {
            Break(ended) => return ended,
            Continue(()) if self.wait.is_try() => return None,
            Continue(()) => {}
        }
        let left = self.wait.left(self.now());
        let claims = self.order.queues().enumerate().map(|(index, slot)| {
            let mut lock = self.slots.lock_of(slot);
            lock.settings.wait = left;
            // One of the claims reports.
            if index > 0 {
                lock.settings.callbacks = Callbacks::default();
            }
            async move { (slot, lock.await) }
        });
        let mut claims: FuturesUnordered<_> = claims.collect();
        let (mut later, mut larger_set) = (pin!(self.later_passes()), pin!(larger_set));
        loop {
            tokio::select! {
                biased;
                // Without a claim that waits, none is repeated until it is answered.
                claimed = claims.next() => match claimed? {
                    (slot, Ok(guard)) => return Some((slot, guard)),
                    (_, Err(error)) => if self.failed(error).0 == ClaimFailure::Refused { return None },
                },
                ended = &mut later => return ended,
                never = &mut larger_set => match never {},
            }
        }
    }

    /// Tries the slots one after another. So two clients that only try never refuse each other a free slot because of a slot that they
    /// give back. Continues if none is free.
    async fn pass(&self, slots: impl Iterator<Item = u32>) -> ControlFlow<Option<(u32, Guard)>> {
        for slot in slots {
            let (failure, is_over) = match self.slots.lock_of(slot).wait(Duration::ZERO).await {
                Ok(guard) => return Break(Some((slot, guard))),
                Err(error) => self.failed(error),
            };
            match failure.after_try(is_over) {
                AfterTry::NextSlot => {}
                AfterTry::EndPass => break,
                AfterTry::GiveUp => return Break(None),
            }
        }
        Continue(())
    }

    /// Tries the slots without a queue once a second.
    async fn later_passes(&self) -> Option<(u32, Guard)> {
        while self.order.others().next().is_some() {
            sleep(RETRY).await;
            if let Break(ended) = self.pass(self.order.others()).await {
                return ended;
            }
        }
        std::future::pending().await
    }

    /// A claim has failed. Returns what that means, and whether the wait is over.
    fn failed(&self, error: Error) -> (ClaimFailure, bool) {
        let failure = error.of_claim(self.slots.lock.settings.ttl());
        let is_over = self.wait.is_over(self.now());
        let (last, claims) = &mut *lock(&self.failed);
        *claims += 1;
        if last.is_none() || failure.replaces_earlier(is_over) {
            *last = Some(error);
        }
        (failure, is_over)
    }

    fn now(&self) -> Moment {
        self.slots.lock.client.clock.now()
    }
}
