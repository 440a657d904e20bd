use super::{Guard, Held, OnThread};
use crate::lock::{settle, unless_busy};
use crate::{Error, HolderId, RunError, Unknown, Waiting};
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
    /// How long the lease outlasts this process if it dies: see [`super::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.map(|slots| slots.ttl(ttl)))
    }

    /// Waits at most this long for a slot; without it, waits without limit. Zero tries each slot once.
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.map(|slots| slots.wait(wait)))
    }

    /// The purpose, which is shown to other clients: at most 128 bytes.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.map(|slots| slots.label(label)))
    }

    /// Releases the slot after this time even if the guard still exists: see [`super::Lock::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.map(|slots| slots.max_hold(max_hold)))
    }

    /// Calls `on_wait` after each reply about one of the slots that are waited for, on the client's thread. It must return quickly.
    pub fn on_wait(self, on_wait: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|slots| slots.on_wait(on_wait)))
    }

    /// Calls `on_trouble` after each failed try while trying continues, on the client's thread. It must return quickly.
    pub fn on_trouble(self, on_trouble: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|slots| slots.on_trouble(on_trouble)))
    }

    /// Checks the key, the number and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key or setting, and for a number that is not within 1 to 1000.
    pub fn check(&self) -> Result<(), Error> {
        self.0.inner.check()
    }

    /// Waits for a slot, and acquires it.
    ///
    /// # Errors
    /// See [`crate::Slots::acquire`].
    pub fn acquire(self) -> Result<SlotGuard, Error> {
        self.0.run(crate::Slots::acquire)
    }

    /// Acquires a slot if one is free and no client waits for it; `None` otherwise.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NotReplicated`], [`Error::Config`], [`Error::Closed`].
    pub fn try_acquire(self) -> Result<Option<SlotGuard>, Error> {
        unless_busy(self.wait(Duration::ZERO).acquire())
    }

    /// Continues a hold of this slot that [`Guard::into_holder`] released from its guard, in this or another process.
    ///
    /// # Errors
    /// See [`crate::Slots::resume`].
    pub fn resume(self, slot: u32, holder: HolderId) -> Result<SlotGuard, Error> {
        self.0.run(|slots| slots.resume(slot, holder))
    }

    /// Runs `body` with the number of a slot on this thread while it is held, releases it, and returns the result of the body. A
    /// closure cannot be interrupted, so it should call [`Held::check`] where it can still stop.
    ///
    /// # Errors
    /// See [`super::Lock::run`].
    pub fn run<T, E>(self, body: impl FnOnce(u32, Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guard = self.acquire()?;
        let ended = body(guard.slot(), guard.held());
        settle(guard.key().clone(), ended, guard.release())
    }
}

/// A held slot: the [`Guard`] of its lock, whose key is `pool#3`. The async type is [`crate::SlotGuard`].
pub type SlotGuard = Guard<crate::SlotNumber>;

impl SlotGuard {
    /// The number of the slot, from 0. [`Slots::resume`] takes it, with the holder id of [`Guard::into_holder`].
    pub const fn slot(&self) -> u32 {
        self.inner.slot()
    }
}
