use super::{Guard, Held, OnThread};
use crate::lock::settle;
use crate::{Error, HolderId, Resized, RunError, Unknown, Waiting};
use std::time::Duration;

/// A semaphore: at most `limit` permits of a key are in use at a time. The async type is [`crate::Semaphore`], which describes
/// the guarantees.
#[must_use = "a semaphore does nothing until permits are acquired"]
#[derive(Debug, Clone)]
pub struct Semaphore(pub(super) OnThread<crate::Semaphore>);

impl Semaphore {
    /// How long the lease outlasts this process if it dies: 10 ms to 24 h, 30 s by default. See
    /// [`Lock::ttl`](super::Lock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.map(|semaphore| semaphore.ttl(ttl)))
    }

    /// Waits at most this long, and 50 ms more for a pending reply; without it, waits without limit. Zero tries once.
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.map(|semaphore| semaphore.wait(wait)))
    }

    /// Tries at most `times` times, with `pause` in between, and does not enter the queue. Clients in the queue come first.
    pub fn retry(self, times: u32, pause: Duration) -> Self {
        Self(self.0.map(|semaphore| semaphore.retry(times, pause)))
    }

    /// The purpose of the permits, which is shown to other clients: at most 128 bytes.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.map(|semaphore| semaphore.label(label)))
    }

    /// Releases the permits after this time even if the guard still exists, as a bound for work that hangs.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.map(|semaphore| semaphore.max_hold(max_hold)))
    }

    /// Calls `callback` after each reply while permits are waited for, on the thread of the client. It must return quickly.
    pub fn on_wait(self, callback: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|semaphore| semaphore.on_wait(callback)))
    }

    /// Calls `callback` after each failed try while trying continues, on the thread of the client. It must return quickly.
    pub fn on_trouble(self, callback: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|semaphore| semaphore.on_trouble(callback)))
    }

    /// Waits for `weight` permits, 1 to the limit, and acquires them together.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::acquire`].
    pub fn acquire(&self, weight: u32) -> Result<Guard, Error> {
        self.0.clone().run(async move |semaphore| semaphore.acquire(weight).await)
    }

    /// Acquires `weight` permits if they are free and no client waits for permits; `None` otherwise.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self, weight: u32) -> Result<Option<Guard>, Error> {
        let guard = self.0.clone().run(async move |semaphore| semaphore.try_acquire(weight).await)?;
        Ok(guard.transpose())
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
        self.0.clone().run(async move |semaphore| semaphore.resume(weight, holder).await)
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
