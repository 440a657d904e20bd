use super::{ClientThread, Guard, Held};
use crate::lock::settle;
use crate::{Error, HolderId, Resized, RunError, Unknown, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// A semaphore: at most `limit` permits of a key are in use at a time. The async type is [`crate::Semaphore`], which describes
/// the guarantees.
#[must_use = "a semaphore does nothing until permits are acquired"]
#[derive(Debug, Clone)]
pub struct Semaphore {
    inner: crate::Semaphore,
    thread: Arc<ClientThread>,
}

impl Semaphore {
    pub(super) const fn new(inner: crate::Semaphore, thread: Arc<ClientThread>) -> Self {
        Self { inner, thread }
    }

    /// How long the lease outlasts this process if it dies: 10 ms to 24 h, 30 s by default. See
    /// [`Lock::ttl`](super::Lock::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.inner = self.inner.ttl(ttl);
        self
    }

    /// Waits at most this long, and 50 ms more for a pending reply; without it, waits without limit. Zero tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.inner = self.inner.wait(wait);
        self
    }

    /// Tries at most `times` times, with `pause` in between, and does not enter the queue. Clients in the queue come first.
    pub fn retry(mut self, times: u32, pause: Duration) -> Self {
        self.inner = self.inner.retry(times, pause);
        self
    }

    /// The purpose of the permits, which is shown to other clients: at most 128 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.inner = self.inner.label(label);
        self
    }

    /// Releases the permits after this time even if the guard still exists, as a bound for work that hangs.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.inner = self.inner.max_hold(max_hold);
        self
    }

    /// Calls `callback` after each reply while permits are waited for, on the thread of the client. It must return quickly.
    pub fn on_wait(mut self, callback: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_wait(callback);
        self
    }

    /// Calls `callback` after each failed try while trying continues, on the thread of the client. It must return quickly.
    pub fn on_trouble(mut self, callback: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_trouble(callback);
        self
    }

    /// Waits for `weight` permits, 1 to the limit, and acquires them together.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::acquire`].
    pub fn acquire(&self, weight: u32) -> Result<Guard, Error> {
        let semaphore = self.inner.clone();
        let guard = self.thread.get(async move { semaphore.acquire(weight).await })?;
        Ok(Guard::new(guard, Arc::clone(&self.thread)))
    }

    /// Acquires `weight` permits if they are free and no client waits for permits; `None` otherwise.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self, weight: u32) -> Result<Option<Guard>, Error> {
        let semaphore = self.inner.clone();
        let guard = self.thread.get(async move { semaphore.try_acquire(weight).await })?;
        Ok(guard.map(|guard| Guard::new(guard, Arc::clone(&self.thread))))
    }

    /// Changes the limit of the semaphore, which is in use with another one, to that of this value.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::resize`].
    pub fn resize(&self) -> Result<Resized, Error> {
        let semaphore = self.inner.clone();
        self.thread.get(async move { semaphore.resize().await })
    }

    /// Continues a hold of `weight` permits that [`Guard::into_holder`] released from its guard, in this or another process.
    ///
    /// # Errors
    /// Those of [`Lock::resume`](super::Lock::resume).
    pub fn resume(&self, weight: u32, holder: HolderId) -> Result<Guard, Error> {
        let semaphore = self.inner.clone();
        let guard = self.thread.get(async move { semaphore.resume(weight, holder).await })?;
        Ok(Guard::new(guard, Arc::clone(&self.thread)))
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
