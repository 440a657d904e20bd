use super::{Guards, HeldAll, OnThread};
use crate::lock_all::settle_all;
use crate::settings::setters;
use crate::{Error, HolderId, RunError};

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

    setters!(LockAll in 0.inner.settings);

    /// Waits for all locks, and acquires them.
    ///
    /// # Errors
    /// See [`crate::LockAll::acquire`].
    pub fn acquire(self) -> Result<Guards, Error> {
        self.0.run(crate::LockAll::acquire).map(Guards)
    }

    /// Acquires all locks if they are free and no client waits for them; `None` otherwise. The locks that were free are then
    /// released again.
    ///
    /// # Errors
    /// See [`crate::LockAll::try_acquire`].
    pub fn try_acquire(self) -> Result<Option<Guards>, Error> {
        Ok(self.0.run(crate::LockAll::try_acquire)?.transpose().map(Guards))
    }

    /// Continues the holds that [`Guards::into_holders`] released from their guards, in this or another process. `holders` are in
    /// the order of the keys.
    ///
    /// # Errors
    /// See [`crate::LockAll::resume`].
    pub fn resume(self, holders: impl IntoIterator<Item = HolderId>) -> Result<Guards, Error> {
        let holders: Vec<_> = holders.into_iter().collect();
        self.0.run(|locks| locks.resume(holders)).map(Guards)
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
