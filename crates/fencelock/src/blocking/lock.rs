use super::{Guard, Held, OnThread, facade};
use crate::lock::run_ended;
use crate::settings::setters;
use crate::{Error, HolderId, RunError};

/// A lock that is not acquired yet. Call [`Lock::acquire`], [`Lock::try_acquire`] or [`Lock::run`]. The async type is
/// [`crate::Lock`].
///
/// Invalid settings are reported by these methods.
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let one = client.lock("catalog").shared().acquire()?;
/// assert!(client.lock("catalog").try_acquire()?.is_none());
///
/// let holder = one.into_holder(); // for another process
/// client.lock("catalog").shared().resume(holder)?.release()?;
/// # Ok::<(), fencelock::Error>(())
/// ```
pub type Lock = OnThread<crate::Lock>;

impl Lock {
    facade! { Lock:
        /// A shared lock: any number of clients can hold it at the same time, but not together with an exclusive lock.
        pub fn shared(self) -> Self;
    }

    setters!(Lock in inner.settings);

    facade! { Lock:
        /// Waits for the lock, and acquires it. Without [`Lock::wait`], only the lock, an outage as long as the TTL, or
        /// [`Client::close`](super::Client::close) ends the wait.
        pub async fn acquire(self) -> Result<Guard, Error>;

        /// Acquires the lock if it is free and no client waits for it; `None` otherwise.
        pub async fn try_acquire(self) -> Result<Option<Guard>, Error>;

        /// Continues a hold that [`Guard::into_holder`] released from its guard, in this or another process.
        pub async fn resume(self, holder: HolderId) -> Result<Guard, Error>;
    }

    /// Runs `body` on this thread while the lock is held, releases the lock, and returns the result of the body.
    ///
    /// The value and the error of the body are always returned, also when the lock was lost: see [`RunError`]. A closure
    /// cannot be interrupted, so it should check [`Held::is_held`] or [`Held::check`] where it can still stop. If the body
    /// panics, the lock is released in the background. See the async [`Lock::run`](crate::Lock::run).
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
        run_ended(&guard.key().clone(), ended, guard.release())
    }
}
