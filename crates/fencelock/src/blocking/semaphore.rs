use super::{Guard, Held, OnThread, facade};
use crate::settings::setters;
use crate::{Error, HolderId, Resized, RunError};

/// A semaphore: at most `limit` permits of a key are in use at a time. The async type is [`crate::Semaphore`], which describes
/// the guarantees.
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let uploads = client.semaphore("uploads", 3);
/// let large = uploads.acquire(2)?;
/// let small = uploads.acquire(1)?;
/// assert!(uploads.try_acquire(1)?.is_none());
///
/// let resized = client.semaphore("uploads", 5).resize()?;
/// assert_eq!((resized.before, resized.limit, resized.used), (3, 5, 3));
/// # drop((large, small));
/// # Ok::<(), fencelock::Error>(())
/// ```
pub type Semaphore = OnThread<crate::Semaphore>;

impl Semaphore {
    setters!(Semaphore in inner.lock.settings);

    facade! { Semaphore:
        /// Waits for `weight` permits, 1 to the limit, and acquires them together.
        pub async fn acquire(&self, weight: u32) -> Result<Guard, Error>;

        /// Acquires `weight` permits if they are free and no client waits for permits; `None` otherwise.
        pub async fn try_acquire(&self, weight: u32) -> Result<Option<Guard>, Error>;

        /// Changes the limit of the semaphore, which is in use with another one, to that of this value.
        pub async fn resize(&self) -> Result<Resized, Error>;

        /// Continues a hold of `weight` permits that [`Guard::into_holder`] released from its guard, in this or another process.
        pub async fn resume(&self, weight: u32, holder: HolderId) -> Result<Guard, Error>;
    }

    /// Runs `body` on this thread while `weight` permits are held, releases them, and returns the result of the body. See
    /// [`Lock::run`](super::Lock::run).
    ///
    /// # Errors
    /// Those of [`Lock::run`](super::Lock::run), with an error of [`Semaphore::acquire`].
    pub fn run<T, E>(&self, weight: u32, body: impl FnOnce(Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        self.beside(self.inner.permits(weight).map_err(Error::from)?).run(body)
    }
}
