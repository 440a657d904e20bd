use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::lock::{Lock, run_under, unless_busy};
use crate::run::RunError;
use crate::settings::setters;
use crate::slot_set::SlotSet;
use fencelock_core::engine::AcquireSlot;
use fencelock_core::{HolderId, Invalid};
use std::future::Future;
use std::time::Duration;

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
    pub(crate) set: SlotSet,
}

impl Slots {
    pub(crate) const fn new(lock: Lock, slots: u32) -> Self {
        Self { set: SlotSet { lock, slots } }
    }

    setters!(Slots in set.lock.settings);

    /// Checks the key, the number and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key or setting, and for a number that is not within 1 to 1000.
    pub fn check(&self) -> Result<(), Error> {
        AcquireSlot::<Error>::new(self.set.slots, 0, None, self.set.lock.client.clock.now())?;
        // The name of the last slot is the longest.
        self.set.lock_of(self.set.slots - 1).check()?;
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
        let (slot, guard) = self.set.acquire().await?;
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
        if slot >= self.set.slots {
            let slots = self.set.slots;
            return Err(Invalid::new(format!("there is no slot {slot}: the slots are 0 to {}", slots - 1)).into());
        }
        let guard = self.set.lock_of(slot).resume(holder).await?;
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
