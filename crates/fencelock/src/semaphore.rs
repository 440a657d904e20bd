use crate::error::Error;
use crate::guard::{Guard, Held};
use crate::lock::Lock;
use crate::run::RunError;
use crate::settings::setters;
use fencelock_core::{HolderId, Invalid, Mode, Resized};
use std::future::Future;

/// A semaphore: at most `limit` permits of a key are in use at a time.
///
/// Each [`Semaphore::acquire`] leases some permits, as a lock is leased: they are renewed while the guard exists, freed when it is
/// dropped or its process crashes, and returned once, even if a release is repeated. Waiters are served in the order of
/// arrival, where the backend has a queue: a small request does not overtake a large one.
///
/// All clients must use the same limit. One that uses another is refused with [`Error::ModeConflict`] while permits are in use or
/// waited for, as is one that wants the key [shared](Lock::shared). [`Semaphore::resize`] changes the limit of a semaphore in
/// use. An exclusive lock on the key waits until all permits are free.
///
/// Tasks of one client that request the same number of permits, with the same TTL and label, pass them on without the backend, as
/// they pass a lock on, unless [`crate::Builder::sharing`] is off.
///
/// The fencing token of a guard distinguishes the holders, but a resource cannot reject old holders by it: several holders are
/// valid at the same time.
#[must_use = "a semaphore does nothing until permits are acquired"]
#[derive(Debug, Clone)]
pub struct Semaphore {
    pub(crate) lock: Lock,
    pub(crate) limit: u32,
}

impl Semaphore {
    setters!(Semaphore in lock.settings);

    /// Waits for `weight` permits, 1 to the limit, and acquires them together.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`]: [`Error::ModeUnsupported`] if the backend has no semaphores, [`Error::ModeConflict`] if the key is
    /// in use with another limit or as a shared lock, and [`Error::Config`] also for a limit that is not within 1 to
    /// [`Mode::MOST_PERMITS`], or a weight that is not within 1 to the limit.
    ///
    /// # Cancel safety
    /// See [`Lock::acquire`].
    pub async fn acquire(&self, weight: u32) -> Result<Guard, Error> {
        self.permits(weight)?.await
    }

    /// Acquires `weight` permits if they are free and no client waits for permits; `None` otherwise.
    ///
    /// # Errors
    /// See [`Semaphore::acquire`]; never [`Error::Busy`].
    ///
    /// # Cancel safety
    /// See [`Lock::acquire`].
    pub async fn try_acquire(&self, weight: u32) -> Result<Option<Guard>, Error> {
        self.permits(weight)?.try_acquire().await
    }

    /// Continues a hold of `weight` permits that [`Guard::into_holder`] released from its guard, in this or another process. If the
    /// semaphore has been resized, the [mode](Guard::mode) of the guard has the limit of the server, and not that of this value.
    ///
    /// # Errors
    /// See [`Lock::resume`]: [`Error::ModeConflict`] also if the hold has another weight.
    ///
    /// # Cancel safety
    /// See [`Lock::resume`].
    pub async fn resume(&self, weight: u32, holder: HolderId) -> Result<Guard, Error> {
        self.permits(weight)?.resume(holder).await
    }

    /// Runs `body` while `weight` permits are held, releases them, and returns the result of the body. See [`Lock::run`].
    ///
    /// # Errors
    /// Those of [`Lock::run`], with an error of [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the permits in the background.
    pub async fn run<T, E, F, B>(&self, weight: u32, body: F) -> Result<T, RunError<T, E>>
    where
        F: FnOnce(Held) -> B,
        B: Future<Output = Result<T, E>>,
    {
        self.permits(weight).map_err(Error::from)?.run(body).await
    }

    /// Changes the limit of the semaphore, which is in use with another one, to that of this value. All holders keep their permits.
    ///
    /// With a larger limit, waiters that fit now are granted their permits at once. With a smaller one, no permit is granted
    /// until enough are returned. New claims with the old limit are refused with [`Error::ModeConflict`]. Claims that wait
    /// already wait for permits of the resized semaphore, unless they want more than there are now: then they are refused at their next
    /// poll. In lock files, which have no queue, all waiters with the old limit are refused.
    ///
    /// ```
    /// # async fn demo() -> Result<(), fencelock::Error> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let upload = client.semaphore("uploads", 3).acquire(1).await?;
    /// let resized = client.semaphore("uploads", 5).resize().await?;
    /// assert_eq!((resized.before, resized.limit, resized.used), (3, 5, 1));
    /// # drop(upload);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key or limit, and for a key that is not in use; [`Error::ModeConflict`] if it is in use, but
    /// not as a semaphore; [`Error::ModeUnsupported`] for a backend without semaphores; [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the limit may or may not be changed; calling it again is harmless.
    pub async fn resize(&self) -> Result<Resized, Error> {
        self.permits(1)?.resize(self.limit).await
    }

    pub(crate) fn permits(&self, weight: u32) -> Result<Lock, Invalid> {
        let mode = Mode::permits(weight, self.limit);
        let mode = mode.map_err(|invalid| Invalid::new(format!("{}: {invalid}", self.lock.key)))?;
        let mut lock = self.lock.clone();
        lock.settings.mode = mode;
        Ok(lock)
    }
}
