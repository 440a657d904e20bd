use super::{Facade, Guard, Held, OnThread, facade};
use crate::lock::settle;
use crate::settings::setters;
use crate::{Error, FencingToken, HolderId, Key, LossReason, Released, RunError};
use std::time::Duration;

/// Numbered slots that are not acquired yet. The async type is [`crate::Slots`], which describes them.
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let slot = client.slots("blocking-pool", 5).acquire()?;
/// println!("connection {} under token {}", slot.slot(), slot.fencing_token());
/// slot.release()?;
/// # Ok::<(), fencelock::Error>(())
/// ```
#[must_use = "slots do nothing until one is acquired"]
#[derive(Debug, Clone)]
pub struct Slots(pub(super) OnThread<crate::Slots>);

impl Slots {
    setters!(Slots in 0.inner.set.lock.settings);

    facade! { Slots:
        /// Checks the key, the number and the settings without a request.
        pub fn check(&self) -> Result<(), Error>;

        /// Waits for a slot, and acquires it.
        pub async fn acquire(self) -> Result<SlotGuard, Error>;

        /// Acquires a slot if one is free and no client waits for it; `None` otherwise.
        pub async fn try_acquire(self) -> Result<Option<SlotGuard>, Error>;

        /// Continues a hold of this slot that [`SlotGuard::into_holder`] released from its guard, in this or another process.
        pub async fn resume(self, slot: u32, holder: HolderId) -> Result<SlotGuard, Error>;
    }

    /// Runs `body` with the number of a slot on this thread while it is held, releases it, and returns the result of the body. A
    /// closure cannot be interrupted, so it should call [`Held::check`] where it can still stop.
    ///
    /// # Errors
    /// See [`super::Lock::run`].
    pub fn run<T, E>(self, body: impl FnOnce(u32, Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let SlotGuard { guard, slot } = self.acquire()?;
        let ended = body(slot, guard.held());
        settle(guard.key().clone(), ended, guard.release())
    }
}

/// A held slot. It is renewed while the guard exists, and released when the guard is dropped. The async type is
/// [`crate::SlotGuard`].
#[must_use = "the slot is released when its guard is dropped"]
#[derive(Debug)]
pub struct SlotGuard {
    guard: Guard,
    slot: u32,
}

impl Facade<crate::SlotGuard> for SlotGuard {
    fn of(held: OnThread<crate::SlotGuard>) -> Self {
        Self { slot: held.inner.slot(), guard: Guard(held.map(crate::SlotGuard::into_guard)) }
    }
}

impl Facade<Option<crate::SlotGuard>> for Option<SlotGuard> {
    fn of(held: OnThread<Option<crate::SlotGuard>>) -> Self {
        held.transpose().map(Facade::of)
    }
}

impl SlotGuard {
    /// The number of the slot, from 0.
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// The key of the lock of this slot: `pool#3`.
    pub fn key(&self) -> &Key {
        self.guard.key()
    }

    /// The fencing token: greater than those of all earlier holders of this slot.
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// The remaining validity of the slot if no renewal succeeds: see [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether the slot is held. After the first `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// [`SlotGuard::is_held`] as a `Result`, for use with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Error::Lost`] if the slot is no longer held.
    pub fn check(&self) -> Result<(), Error> {
        self.guard.check()
    }

    /// Blocks until the slot is lost, and returns the reason: see [`Guard::lost`].
    pub fn lost(&self) -> LossReason {
        self.guard.lost()
    }

    /// A view of the slot for other threads.
    pub fn held(&self) -> Held {
        self.guard.held()
    }

    /// Releases the slot and waits for the confirmation of the server.
    ///
    /// # Errors
    /// See [`Guard::release`].
    pub fn release(self) -> Result<Released, Error> {
        self.guard.release()
    }

    /// Stops renewing the hold, which continues until its lease ends; [`Slots::resume`] continues it. See
    /// [`Guard::into_holder`].
    pub fn into_holder(self) -> HolderId {
        self.guard.into_holder()
    }

    /// The guard of the lock of this slot.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}
