use crate::driver::{self, ClientInner};
use crate::error::Error;
use crate::guard::{Guard, Held, Released};
use crate::request::{OnTrouble, OnWait, Request, Waiting};
use crate::run::RunError;
use fencelock_core::engine::{AcquireRequest, LeaseSharing, Retry};
use fencelock_core::{HolderId, Invalid, Key, Ttl, Unknown};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A lock described, not yet held. Await it, or call [`Lock::try_acquire`] or [`Lock::run`].
///
/// Settings that cannot be used are reported by whichever of these is called.
#[must_use = "a lock does nothing until it is awaited"]
#[derive(Clone)]
pub struct Lock {
    client: Arc<ClientInner>,
    key: String,
    ttl: Duration,
    wait: Option<Duration>,
    retry: Option<Retry>,
    label: Option<String>,
    max_hold: Option<Duration>,
    lease_sharing: LeaseSharing,
    on_wait: Option<OnWait>,
    on_trouble: Option<OnTrouble>,
}

impl Lock {
    pub(crate) fn new(client: Arc<ClientInner>, key: &str) -> Self {
        let ttl = Ttl::default().get();
        Self {
            client,
            key: key.into(),
            ttl,
            wait: None,
            retry: None,
            label: None,
            max_hold: None,
            lease_sharing: LeaseSharing::Allowed,
            on_wait: None,
            on_trouble: None,
        }
    }

    /// How long the lease outlives this process if it dies: 10 ms to 24 h, 30 s unless set. A place with a quarantine
    /// allows no more than its `max_ttl=`.
    ///
    /// While the guard lives the lease is renewed every third of it, so it need not cover the work. Shorter means a
    /// crash costs less waiting; longer survives longer outages of the server.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Waits at most this long, and 50 ms for a last answer; without it, as long as it takes. Zero asks once, and waits for
    /// that answer as long as the place allows.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Asks at most `times` times, `pause` apart, and never stands in line. Others that do stand in line come first. Zero
    /// times is once, as there is no answer without a question.
    pub fn retry(mut self, times: u32, pause: Duration) -> Self {
        self.retry = Some(Retry { times: times.max(1), pause });
        self
    }

    /// What the lock is for, shown to those who wait for it: at most 128 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Lets the lock go, as lost, after this long even if the guard lives: a bound for work that hangs. The guard says
    /// so before anybody else can have the lock, and whoever waits gets it at once.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Claims for itself, as if it were the only task of its client.
    pub(crate) fn unshared(mut self) -> Self {
        self.lease_sharing = LeaseSharing::Never;
        self
    }

    /// Calls `told` after each answer while it waits. It must return quickly.
    pub fn on_wait(mut self, told: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.on_wait = Some(Arc::new(told));
        self
    }

    /// Calls `told` after each try that could not tell, while it goes on trying: servers that do not answer, or that are
    /// in quarantine. It must return quickly.
    pub fn on_trouble(mut self, told: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        self.on_trouble = Some(Arc::new(told));
        self
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Error::Busy`] when the wait is over, [`Error::Unreachable`] when the place has not answered for as long as
    /// the TTL (or the wait, or at once if it asks only once), [`Error::NotReplicated`] at once, [`Error::Config`],
    /// [`Error::Closed`]. The end of a quarantine is waited for as long as for a release.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in line; if the lock was granted meanwhile it is released in the
    /// background. Nothing stays behind.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let request = self.check()?;
        let asked = self.client.telemetry.asked();
        let claimed = driver::acquire(&self.client, &request).await;
        asked.ended(&claimed);
        claimed
    }

    /// Takes the lock if it is free and nobody waits for it; `None` if not.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NotReplicated`], [`Error::Config`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        match self.wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Continues a hold that [`Guard::into_holder`] let go of, here or in another process.
    ///
    /// # Errors
    /// [`Error::Lost`] if that holder does not have the key any more, [`Error::Unreachable`],
    /// [`Error::NotReplicated`], [`Error::Config`].
    ///
    /// # Cancel safety
    /// The hold goes on, unwatched, until its lease ends or it is resumed again.
    pub async fn resume(self, holder: HolderId) -> Result<Guard, Error> {
        let request = self.check()?;
        driver::resume(&self.client, &request, holder).await
    }

    /// Runs `body` while the lock is held, releases the lock, and returns what the body returned.
    ///
    /// `Ok` means that the body has ended well and that the lock was held until then. The value and the error of the body
    /// always come back, also when the lock was lost meanwhile: see [`RunError`]. Use the [`Held`] that the body is given
    /// for its fencing token. If the lock is lost while the body runs, the body is dropped at its next await point.
    ///
    /// A release that the server does not confirm is no error, for the body has run under the lock: it goes on in the
    /// background until the lease would have ended, as for a guard that is dropped.
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
    /// had ended; [`RunError::Body`] with the body's own error; [`RunError::LostAfter`] with the body's value if the lock
    /// was found lost when it was to be released.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases in the background.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, RunError<T, E>>
    where
        F: FnOnce(Held) -> B,
        B: Future<Output = Result<T, E>>,
    {
        let guard = self.acquire().await?;
        let ended = tokio::select! {
            biased;
            ended = body(guard.held()) => ended,
            reason = guard.lost() => {
                return Err(Error::Lost { key: guard.key().clone(), reason }.into());
            }
        };
        let key = guard.key().clone();
        settle(key, ended, guard.release().await)
    }

    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<Request, Invalid> {
        self.client.check_process()?;
        let ttl = Ttl::new(self.ttl)?;
        self.client.config.drift.check(ttl)?;
        ttl.within(self.client.backend.capabilities().longest_ttl)?;
        Ok(Request {
            key: Key::new(&self.key)?,
            options: AcquireRequest {
                owner: self.client.identity.owner(self.label.as_deref())?,
                ttl,
                wait: self.wait,
                retry: self.retry,
                max_hold: self.max_hold,
                lease_sharing: self.lease_sharing,
            },
            on_wait: self.on_wait.clone(),
            on_trouble: self.on_trouble.clone(),
        })
    }
}

/// What comes of a body that has ended, by how the release went.
pub(crate) fn settle<T, E>(
    key: Key,
    ended: Result<T, E>,
    release: Result<Released, Error>,
) -> Result<T, RunError<T, E>> {
    let value = ended.map_err(RunError::Body)?;
    match release {
        Ok(Released::Released) => Ok(value),
        Ok(Released::AlreadyLost { why }) => Err(RunError::LostAfter { value, key, reason: why }),
        Err(error) => {
            // Only a lock that was held when its release began is released in vain, so the work was done under it.
            tracing::warn!(%key, "release not confirmed, trying on in the background: {error:#}");
            Ok(value)
        }
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", &self.key)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("retry", &self.retry)
            .field("label", &self.label)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}
