use crate::driver;
use crate::driver::ClientInner;
use crate::error::{Error, check_resize, no_semaphore, not_in_use};
use crate::guard::{Guard, Held};
use crate::run::RunError;
use crate::settings::{CheckedLock, LockSettings, setters};
use fencelock_core::{HolderId, Key, Mode, Resize, Resized};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A lock that is not acquired yet. Await it, or call [`Lock::try_acquire`] or [`Lock::run`].
///
/// Invalid settings are reported by these methods.
#[must_use = "a lock does nothing until it is awaited"]
#[derive(Debug, Clone)]
pub struct Lock {
    pub(crate) client: Arc<ClientInner>,
    pub(crate) key: String,
    pub(crate) settings: LockSettings,
}

impl Lock {
    pub(crate) fn new(client: &Arc<ClientInner>, key: &str, settings: LockSettings) -> Self {
        Self { client: Arc::clone(client), key: key.into(), settings }
    }

    /// A shared lock: any number of clients can hold it at the same time, but not together with an exclusive lock.
    ///
    /// Waiters are served in the order of arrival, where the backend has a queue: consecutive readers get the lock together, and
    /// no reader overtakes a writer, so a stream of readers does not starve a writer. On a quorum there is no queue, and readers
    /// that always overlap can starve a writer. A shared lock cannot be upgraded to an exclusive one, because two readers that
    /// upgrade would deadlock: release it, acquire an exclusive lock, and check again what was read. [`Guard::downgrade`] turns
    /// an exclusive lock into a shared one.
    ///
    /// ```
    /// # async fn demo() -> Result<(), fencelock::Error> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let one = client.lock("catalog").shared().await?;
    /// let two = client.lock("catalog").shared().await?;
    /// assert!(client.lock("catalog").try_acquire().await?.is_none());
    /// # drop((one, two));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    pub fn shared(mut self) -> Self {
        self.settings.mode = Mode::Shared;
        self
    }

    setters!(Lock in settings);

    /// Waits for the lock, and acquires it.
    ///
    /// # Errors
    /// [`Error::Busy`] after the [maximum wait](Lock::wait). [`Error::Unreachable`] if the backend does not answer: after the maximum
    /// wait, or without one when it has not answered for the TTL. A busy lock and a quarantine are answers, and are waited for.
    /// [`Error::NotReplicated`] immediately, [`Error::ModeUnsupported`] and [`Error::ModeConflict`] for a [shared](Lock::shared) lock,
    /// [`Error::Config`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue; if the lock was granted in the meantime, it is released in the
    /// background.
    ///
    /// A future that is neither polled nor dropped while its turn has come, for example in a `select!` in a loop, loses its turn to the
    /// other tasks of this client after two to four seconds. It is the first again when it is polled.
    pub async fn acquire(self) -> Result<Guard, Error> {
        self.await
    }

    /// Acquires the lock if it is free and no client waits for it; `None` otherwise.
    ///
    /// # Errors
    /// See [`Lock::acquire`]; never [`Error::Busy`].
    ///
    /// # Cancel safety
    /// See [`Lock::acquire`].
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        unless_busy(self.wait(Duration::ZERO).await)
    }

    /// Continues a hold that [`Guard::into_holder`] released from its guard, in this or another process. A hold of a shared lock
    /// is resumed as [shared](Lock::shared).
    ///
    /// # Errors
    /// [`Error::Lost`] if that holder no longer holds the key, [`Error::Unreachable`],
    /// [`Error::NotReplicated`], [`Error::ModeConflict`] if the hold has another mode, [`Error::ModeUnsupported`], [`Error::Config`].
    ///
    /// # Cancel safety
    /// The hold continues without renewal until its lease ends or it is resumed again.
    pub async fn resume(self, holder: HolderId) -> Result<Guard, Error> {
        let request = self.check()?;
        driver::resume(&self.client, &request, holder).await
    }

    /// Runs `body` while the lock is held, releases the lock, and returns the result of the body.
    ///
    /// `Ok` means that the body succeeded and that the lock was held until then. The value and the error of the body
    /// are always returned, also when the lock was lost: see [`RunError`]. The body gets a [`Held`] with
    /// its fencing token. If the lock is lost while the body runs, the body is dropped at its next await point.
    ///
    /// A release that the server does not confirm is not an error, because the body was protected by the lock: it continues
    /// in the background until the lease would have ended, as for a dropped guard.
    ///
    /// ```
    /// use fencelock::RunError;
    ///
    /// # #[derive(Debug)] enum NoPaper { Empty }
    /// # async fn print(_token: u64) -> Result<u32, NoPaper> { Ok(3) }
    /// # async fn demo() -> Result<(), fencelock::Error> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let printed = client.lock("printer").run(async |held| {
    ///     let pages = print(held.fencing_token().get()).await?;
    ///     Ok(pages)
    /// });
    /// match printed.await {
    ///     Ok(pages) => println!("{pages} pages"),
    ///     Err(RunError::Body(NoPaper::Empty)) => println!("fill in paper"),
    ///     Err(RunError::LostAfter { value, .. }) => println!("{value} pages, maybe between those of others"),
    ///     Err(RunError::Lock(error)) => println!("not printed: {error:#}"),
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`RunError::Lock`] with an error of [`Lock::acquire`], and with [`Error::Lost`] if the lock was lost before `body`
    /// ended; [`RunError::Body`] with the error of the body; [`RunError::LostAfter`] with the value of the body if the loss
    /// was detected by the release.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the lock in the background.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, RunError<T, E>>
    where
        F: FnOnce(Held) -> B,
        B: Future<Output = Result<T, E>>,
    {
        run_under(self.await?, |guard| body(guard.held())).await
    }

    /// Changes the limit of the semaphore of this key.
    pub(crate) async fn resize(&self, limit: u32) -> Result<Resized, Error> {
        let config = &self.client.config;
        check_resize(&config.backend, &Key::new(&self.key)?, config.capabilities.modes, self.settings.mode)?;
        let key = self.check()?.key;
        match self.client.ask(Some(&key), self.client.backend.resize(&key, limit)).await? {
            Resize::Resized(resized) => Ok(resized),
            Resize::Free => Err(not_in_use(&key).into()),
            Resize::OtherMode { mode, holders } => Err(no_semaphore(&key, mode, &holders)),
        }
    }

    /// Checks the key and the settings.
    pub(crate) fn check(&self) -> Result<CheckedLock, Error> {
        self.settings.check(&self.client, Key::new(&self.key)?)
    }
}

/// The result of one try: `None` if the key is busy.
pub(crate) fn unless_busy<T>(claimed: Result<T, Error>) -> Result<Option<T>, Error> {
    match claimed {
        Ok(guard) => Ok(Some(guard)),
        Err(Error::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reports a release that was not confirmed and that the result of the work does not depend on.
pub(crate) fn report_unconfirmed(key: &Key, error: &Error) {
    if !error.is_lost() {
        tracing::warn!(%key, "release not confirmed, retrying in the background: {error:#}");
    }
}

/// Runs `body` while the lock is held, and releases it.
pub(crate) async fn run_under<P, T, E, B: Future<Output = Result<T, E>>>(
    guard: Guard<P>,
    body: impl FnOnce(&Guard<P>) -> B,
) -> Result<T, RunError<T, E>> {
    let ended = tokio::select! {
        biased;
        ended = body(&guard) => ended,
        reason = guard.lost() => return Err(Error::from(guard.held().loss_by(reason)).into()),
    };
    run_ended(&guard.key().clone(), ended, guard.release().await)
}

/// Combines the result of the body with the result of the release.
pub(crate) fn run_ended<T, E>(key: &Key, ended: Result<T, E>, release: Result<(), Error>) -> Result<T, RunError<T, E>> {
    let value = ended.map_err(RunError::Body)?;
    match release {
        Ok(()) => Ok(value),
        Err(Error::Lost { key, reason, .. }) => Err(RunError::LostAfter { value, key, reason }),
        Err(error) => {
            // Only a lock that was held when its release started can fail to be released, so the work was protected by it.
            report_unconfirmed(error.key().unwrap_or(key), &error);
            Ok(value)
        }
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let (checked, client) = (self.check(), self.client);
        match checked {
            Ok(request) => Box::pin(async move {
                let attempt = client.telemetry.attempt(request.options.mode);
                let claimed = driver::acquire(&client, request).await;
                attempt.ended(&claimed);
                claimed
            }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}
