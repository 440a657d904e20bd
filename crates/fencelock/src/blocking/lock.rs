use super::{Guard, Held, OnThread};
use crate::lock::settle;
use crate::settings::setters;
use crate::{Error, HolderId, RunError};

/// A lock that is not acquired yet. Call [`Lock::acquire`], [`Lock::try_acquire`] or [`Lock::run`]. The async type is
/// [`crate::Lock`].
///
/// Invalid settings are reported by these methods.
#[must_use = "a lock does nothing until it is acquired"]
#[derive(Debug, Clone)]
pub struct Lock(pub(super) OnThread<crate::Lock>);

impl Lock {
    /// A shared lock: any number of clients can hold it at the same time, but not together with an exclusive lock.
    ///
    /// Consecutive readers in the queue get the lock together, and no reader overtakes a writer. There is no upgrade to an
    /// exclusive lock; [`Guard::downgrade`] turns an exclusive lock into a shared one. See [`crate::Lock::shared`].
    pub fn shared(self) -> Self {
        Self(self.0.map(crate::Lock::shared))
    }

    setters!(Lock in 0.inner.settings);

    /// Waits for the lock, and acquires it. Without [`Lock::wait`], only the lock, an outage as long as the TTL, or
    /// [`Client::close`](super::Client::close) ends the wait.
    ///
    /// # Errors
    /// [`Error::Busy`] after the maximum wait, [`Error::Unreachable`] if the backend has not answered for
    /// the TTL (or the maximum wait, or immediately if it tries once), [`Error::NotReplicated`] immediately,
    /// [`Error::ModeUnsupported`] and [`Error::ModeConflict`] for a [shared](Lock::shared) lock, [`Error::Config`],
    /// [`Error::Closed`]. A quarantine is waited for like a held lock.
    pub fn acquire(self) -> Result<Guard, Error> {
        self.0.run(crate::Lock::acquire).map(Guard)
    }

    /// Acquires the lock if it is free and no client waits for it; `None` otherwise.
    ///
    /// # Errors
    /// See [`Lock::acquire`]; never [`Error::Busy`].
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        Ok(self.0.run(crate::Lock::try_acquire)?.transpose().map(Guard))
    }

    /// Continues a hold that [`Guard::into_holder`] released from its guard, in this or another process. A hold of a shared lock
    /// is resumed as [shared](Lock::shared).
    ///
    /// # Errors
    /// [`Error::Lost`] if that holder no longer holds the key, [`Error::Unreachable`],
    /// [`Error::NotReplicated`], [`Error::ModeConflict`] if the hold has another mode, [`Error::ModeUnsupported`], [`Error::Config`].
    pub fn resume(self, holder: HolderId) -> Result<Guard, Error> {
        self.0.run(|lock| lock.resume(holder)).map(Guard)
    }

    /// Runs `body` on this thread while the lock is held, releases the lock, and returns the result of the body.
    ///
    /// `Ok` means that the body succeeded and that the lock was held until then. The value and the error of the body
    /// are always returned, also when the lock was lost: see [`RunError`]. A closure cannot be interrupted, so it
    /// should check [`Held::is_held`] or [`Held::check`] where it can still stop.
    ///
    /// A release that the server does not confirm is not an error, because the body was protected by the lock: it continues
    /// in the background until the lease would have ended. If the body panics, the lock is also released in the background.
    ///
    /// ```
    /// use fencelock::RunError;
    ///
    /// let client = fencelock::blocking::Client::connect("memory:")?;
    /// let pages: Result<u32, RunError<u32, std::io::Error>> = client.lock("printer").run(|held| {
    ///     println!("printing under token {}", held.fencing_token());
    ///     Ok(3)
    /// });
    /// assert_eq!(pages.unwrap(), 3);
    /// # Ok::<(), fencelock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::Lock`] with an error of [`Lock::acquire`], and the body is not called; [`RunError::Body`] with the error
    /// of the body; [`RunError::LostAfter`] with the value of the body if the lock was lost before it was released.
    pub fn run<T, E>(self, body: impl FnOnce(Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guard = self.acquire()?;
        let ended = body(guard.held());
        settle(guard.key().clone(), ended, guard.release())
    }
}
