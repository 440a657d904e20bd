use super::{Engine, Guards, HeldAll};
use crate::lock_all::settle_all;
use crate::{Error, HolderId, RunError, Unknown, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// Several locks described, not yet held. Call [`LockAll::acquire`], [`LockAll::try_acquire`] or [`LockAll::run`]. You get all
/// of the locks or none of them. The async twin is [`crate::LockAll`], which says how they are acquired.
#[must_use = "the locks do nothing until they are acquired"]
#[derive(Debug, Clone)]
pub struct LockAll {
    inner: crate::LockAll,
    engine: Arc<Engine>,
}

impl LockAll {
    pub(super) const fn new(inner: crate::LockAll, engine: Arc<Engine>) -> Self {
        Self { inner, engine }
    }

    /// Shared locks on all of the keys. See [`Lock::shared`](super::Lock::shared).
    pub fn shared(mut self) -> Self {
        self.inner = self.inner.shared();
        self
    }

    /// How long the leases outlive this process if it dies: 10 ms to 24 h, 30 s unless set. See [`super::Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.inner = self.inner.ttl(ttl);
        self
    }

    /// Waits at most this long for all locks together, and 50 ms for a last answer; without it, as long as it takes. Zero
    /// claims each key once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.inner = self.inner.wait(wait);
        self
    }

    /// What the locks are for, shown to clients that wait for one of them: at most 128 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.inner = self.inner.label(label);
        self
    }

    /// Releases all locks, as lost, this long after the last of them was acquired, even if [`Guards`] lives: a bound for work
    /// that hangs.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.inner = self.inner.max_hold(max_hold);
        self
    }

    /// Calls `on_wait` after each answer while it waits, with the key that it waits for. It is called on the client's thread
    /// and must return quickly.
    pub fn on_wait(mut self, on_wait: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_wait(on_wait);
        self
    }

    /// Calls `on_trouble` after each try that brought no answer, while it goes on trying. It is called on the client's thread
    /// and must return quickly.
    pub fn on_trouble(mut self, on_trouble: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_trouble(on_trouble);
        self
    }

    /// Waits for all locks.
    ///
    /// # Errors
    /// As for [`super::Lock::acquire`]. [`Error::Busy`] names the key that was not free when the wait was over. [`Error::Lost`]
    /// names a key that was lost while the others were waited for, if no time was left to begin again. [`Error::Config`] if
    /// there is no key, more than 16, or a key that is named twice. With any error, the locks that were held are released.
    pub fn acquire(self) -> Result<Guards, Error> {
        let Self { inner, engine } = self;
        let guards = engine.get(inner.acquire())?;
        Ok(Guards::new(guards, engine))
    }

    /// Takes all locks if all are free and no client waits for them; `None` if not. Then the locks that were free are released
    /// again.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NotReplicated`], [`Error::Lost`], [`Error::Config`], [`Error::Closed`].
    pub fn try_acquire(self) -> Result<Option<Guards>, Error> {
        let Self { inner, engine } = self;
        let guards = engine.get(inner.try_acquire())?;
        Ok(guards.map(|guards| Guards::new(guards, engine)))
    }

    /// Continues the holds that [`Guards::into_holders`] released from their guards, in this or another process. `holders` are in
    /// the order of the keys.
    ///
    /// # Errors
    /// See [`crate::LockAll::resume`].
    pub fn resume(self, holders: impl IntoIterator<Item = HolderId>) -> Result<Guards, Error> {
        let Self { inner, engine } = self;
        let holders: Vec<_> = holders.into_iter().collect();
        let guards = engine.get(inner.resume(holders))?;
        Ok(Guards::new(guards, engine))
    }

    /// Runs `body` on this thread while all locks are held, releases them, and returns what the body returned. A closure cannot
    /// be interrupted, so it should call [`HeldAll::check`] where it can still stop. Everything else is as for
    /// [`super::Lock::run`].
    ///
    /// # Errors
    /// As for [`super::Lock::run`], with the key that was lost first.
    pub fn run<T, E>(self, body: impl FnOnce(HeldAll) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guards = self.acquire()?;
        let ended = body(guards.held());
        settle_all(guards.keys()[0].clone(), ended, guards.release())
    }
}
