use super::{Guards, HeldAll, OnThread};
use crate::lock_all::settle_all;
use crate::{Error, HolderId, RunError, Unknown, Waiting};
use std::time::Duration;

/// Locks on several keys that are not acquired yet. Call [`LockAll::acquire`], [`LockAll::try_acquire`] or [`LockAll::run`]. All of
/// the locks are acquired, or none. The async type is [`crate::LockAll`], which describes how they are acquired.
#[must_use = "the locks do nothing until they are acquired"]
#[derive(Debug, Clone)]
pub struct LockAll(pub(super) OnThread<crate::LockAll>);

impl LockAll {
    /// Shared locks on all of the keys. See [`Lock::shared`](super::Lock::shared).
    pub fn shared(self) -> Self {
        Self(self.0.map(crate::LockAll::shared))
    }

    /// How long the leases outlast this process if it dies: 10 ms to 24 h, 30 s by default. See [`super::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.map(|locks| locks.ttl(ttl)))
    }

    /// Waits at most this long for all locks together, and 50 ms more for a pending reply; without it, waits without limit. Zero
    /// tries each key once.
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.map(|locks| locks.wait(wait)))
    }

    /// The purpose of the locks, which is shown to other clients: at most 128 bytes.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.map(|locks| locks.label(label)))
    }

    /// Releases all locks this long after the last of them was acquired, even if the [`Guards`] still exist, as a bound for work
    /// that hangs.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.map(|locks| locks.max_hold(max_hold)))
    }

    /// Calls `on_wait` after each reply while one of the keys is waited for, on the thread of the client. It must return quickly.
    pub fn on_wait(self, on_wait: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|locks| locks.on_wait(on_wait)))
    }

    /// Calls `on_trouble` after each failed try while trying continues, on the thread of the client. It must return quickly.
    pub fn on_trouble(self, on_trouble: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|locks| locks.on_trouble(on_trouble)))
    }

    /// Waits for all locks, and acquires them.
    ///
    /// # Errors
    /// See [`crate::LockAll::acquire`].
    pub fn acquire(self) -> Result<Guards, Error> {
        self.0.run(crate::LockAll::acquire)
    }

    /// Acquires all locks if they are free and no client waits for them; `None` otherwise. The locks that were free are then
    /// released again.
    ///
    /// # Errors
    /// See [`crate::LockAll::try_acquire`].
    pub fn try_acquire(self) -> Result<Option<Guards>, Error> {
        Ok(self.0.run(crate::LockAll::try_acquire)?.transpose())
    }

    /// Continues the holds that [`Guards::into_holders`] released from their guards, in this or another process. `holders` are in
    /// the order of the keys.
    ///
    /// # Errors
    /// See [`crate::LockAll::resume`].
    pub fn resume(self, holders: impl IntoIterator<Item = HolderId>) -> Result<Guards, Error> {
        let holders: Vec<_> = holders.into_iter().collect();
        self.0.run(|locks| locks.resume(holders))
    }

    /// Runs `body` on this thread while all locks are held, releases them, and returns the result of the body. A closure cannot
    /// be interrupted, so it should call [`HeldAll::check`] where it can still stop. See [`super::Lock::run`].
    ///
    /// # Errors
    /// See [`super::Lock::run`], with the key of the first loss.
    pub fn run<T, E>(self, body: impl FnOnce(HeldAll) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guards = self.acquire()?;
        let ended = body(guards.held());
        settle_all(guards.keys()[0].clone(), ended, guards.release())
    }
}
