use super::{Guard, Held, OnThread};
use crate::lock::settle;
use crate::settings::setters;
use crate::{Error, HolderId, Resized, RunError};

/// A semaphore: at most `limit` permits of a key are in use at a time. The async type is [`crate::Semaphore`], which describes
/// the guarantees.
#[must_use = "a semaphore does nothing until permits are acquired"]
#[derive(Debug, Clone)]
pub struct Semaphore(pub(super) OnThread<crate::Semaphore>);

impl Semaphore {
    setters!(Semaphore in 0.inner.lock.settings);

    /// Waits for `weight` permits, 1 to the limit, and acquires them together.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::acquire`].
    pub fn acquire(&self, weight: u32) -> Result<Guard, Error> {
        self.0.clone().run(async move |semaphore| semaphore.acquire(weight).await).map(Guard)
    }

    /// Acquires `weight` permits if they are free and no client waits for permits; `None` otherwise.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self, weight: u32) -> Result<Option<Guard>, Error> {
        let guard = self.0.clone().run(async move |semaphore| semaphore.try_acquire(weight).await)?;
        Ok(guard.transpose().map(Guard))
    }

    /// Changes the limit of the semaphore, which is in use with another one, to that of this value.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::resize`].
    pub fn resize(&self) -> Result<Resized, Error> {
        self.0.ask(async move |semaphore| semaphore.resize().await)
    }

    /// Continues a hold of `weight` permits that [`Guard::into_holder`] released from its guard, in this or another process.
    ///
    /// # Errors
    /// Those of [`Lock::resume`](super::Lock::resume).
    pub fn resume(&self, weight: u32, holder: HolderId) -> Result<Guard, Error> {
        self.0.clone().run(async move |semaphore| semaphore.resume(weight, holder).await).map(Guard)
    }

    /// Runs `body` on this thread while `weight` permits are held, releases them, and returns the result of the body. See
    /// [`Lock::run`](super::Lock::run).
    ///
    /// # Errors
    /// Those of [`Lock::run`](super::Lock::run), with an error of [`Semaphore::acquire`].
    pub fn run<T, E>(&self, weight: u32, body: impl FnOnce(Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guard = self.acquire(weight)?;
        let ended = body(guard.held());
        settle(guard.key().clone(), ended, guard.release())
    }
}
