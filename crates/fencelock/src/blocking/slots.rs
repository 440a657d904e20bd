use super::{Guard, Held, OnThread, facade};
use crate::lock::run_ended;
use crate::settings::setters;
use crate::{Error, HolderId, RunError};

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
pub type Slots = OnThread<crate::Slots>;

impl Slots {
    setters!(Slots in inner.lock.settings);

    facade! { Slots:
        /// Checks the key, the number and the settings without a request.
        pub fn check(&self) -> Result<(), Error>;

        /// Waits for a slot, and acquires it.
        pub async fn acquire(self) -> Result<SlotGuard, Error>;

        /// Acquires a slot if one is free and no client waits for it; `None` otherwise.
        pub async fn try_acquire(self) -> Result<Option<SlotGuard>, Error>;

        /// Continues a hold of this slot that [`Guard::into_holder`] released from its guard, in this or another process.
        pub async fn resume(self, slot: u32, holder: HolderId) -> Result<SlotGuard, Error>;
    }

    /// Runs `body` with the number of a slot on this thread while it is held, releases it, and returns the result of the body. A
    /// closure cannot be interrupted, so it should call [`Held::check`] where it can still stop.
    ///
    /// # Errors
    /// See [`super::Lock::run`].
    pub fn run<T, E>(self, body: impl FnOnce(u32, Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guard = self.acquire()?;
        let ended = body(guard.slot(), guard.held());
        run_ended(&guard.key().clone(), ended, guard.release())
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
