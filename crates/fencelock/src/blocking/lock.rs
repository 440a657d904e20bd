use super::{Engine, Guard, Held};
use crate::lock::settle;
use crate::{Error, HolderId, RunError, Unknown, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// A lock described, not yet held. Call [`Lock::acquire`], [`Lock::try_acquire`] or [`Lock::run`]. The async twin is
/// [`crate::Lock`].
///
/// Settings that cannot be used are reported by whichever of these is called.
#[must_use = "a lock does nothing until it is acquired"]
#[derive(Debug, Clone)]
pub struct Lock {
    inner: crate::Lock,
    engine: Arc<Engine>,
}

impl Lock {
    pub(super) const fn new(inner: crate::Lock, engine: Arc<Engine>) -> Self {
        Self { inner, engine }
    }

    /// How long the lease outlives this process if it dies: 10 ms to 24 h, 30 s unless set. A place with a quarantine
    /// allows no more than its `max_ttl=`.
    ///
    /// While the guard lives the lease is renewed every third of it, so it need not cover the work. Shorter means a
    /// crash costs less waiting; longer survives longer outages of the server.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.inner = self.inner.ttl(ttl);
        self
    }

    /// Waits at most this long, and 50 ms for a last answer; without it, as long as it takes. Zero asks once, and waits for
    /// that answer as long as the place allows.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.inner = self.inner.wait(wait);
        self
    }

    /// Asks at most `times` times, `pause` apart, and never stands in line. Others that do stand in line come first. Zero
    /// times is once, as there is no answer without a question.
    pub fn retry(mut self, times: u32, pause: Duration) -> Self {
        self.inner = self.inner.retry(times, pause);
        self
    }

    /// What the lock is for, shown to those who wait for it: at most 128 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.inner = self.inner.label(label);
        self
    }

    /// Lets the lock go, as lost, after this long even if the guard lives: a bound for work that hangs. The guard says
    /// so before anybody else can have the lock, and whoever waits gets it at once.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.inner = self.inner.max_hold(max_hold);
        self
    }

    /// Calls `told` after each answer while it waits, on the client's thread. It must return quickly.
    pub fn on_wait(mut self, told: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_wait(told);
        self
    }

    /// Calls `told` after each try that could not tell, while it goes on trying: servers that do not answer, or that are
    /// in quarantine. It is called on the client's thread and must return quickly.
    pub fn on_trouble(mut self, told: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_trouble(told);
        self
    }

    /// Waits for the lock. Without [`Lock::wait`] nothing but the lock, an outage as long as the TTL, or
    /// [`Client::close`](super::Client::close) ends it.
    ///
    /// # Errors
    /// [`Error::Busy`] when the wait is over, [`Error::Unreachable`] when the place has not answered for as long as
    /// the TTL (or the wait, or at once if it asks only once), [`Error::NotReplicated`] at once, [`Error::Config`],
    /// [`Error::Closed`]. The end of a quarantine is waited for as long as for a release.
    pub fn acquire(self) -> Result<Guard, Error> {
        let Self { inner, engine } = self;
        let guard = engine.get(inner.acquire())?;
        Ok(Guard::new(guard, engine))
    }

    /// Takes the lock if it is free and nobody waits for it; `None` if not.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NotReplicated`], [`Error::Config`], [`Error::Closed`].
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        let Self { inner, engine } = self;
        let guard = engine.get(inner.try_acquire())?;
        Ok(guard.map(|guard| Guard::new(guard, engine)))
    }

    /// Continues a hold that [`Guard::into_holder`] let go of, here or in another process.
    ///
    /// # Errors
    /// [`Error::Lost`] if that holder does not have the key any more, [`Error::Unreachable`],
    /// [`Error::NotReplicated`], [`Error::Config`].
    pub fn resume(self, holder: HolderId) -> Result<Guard, Error> {
        let Self { inner, engine } = self;
        let guard = engine.get(inner.resume(holder))?;
        Ok(Guard::new(guard, engine))
    }

    /// Runs `body` on this thread while the lock is held, releases the lock, and returns what the body returned.
    ///
    /// `Ok` means that the body has ended well and that the lock was held until then. The value and the error of the body
    /// always come back, also when the lock was lost meanwhile: see [`RunError`]. A closure cannot be interrupted, so it
    /// should look at [`Held::is_held`] or [`Held::check`] where it can still stop.
    ///
    /// A release that the server does not confirm is no error, for the body has run under the lock: it goes on in the
    /// background until the lease would have ended. If the body panics the lock is released in the background too.
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
    /// [`RunError::Lock`] with an error of [`Lock::acquire`], the body not called; [`RunError::Body`] with the body's own
    /// error; [`RunError::LostAfter`] with the body's value if the lock was lost before it was released.
    pub fn run<T, E>(self, body: impl FnOnce(Held) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guard = self.acquire()?;
        let ended = body(guard.held());
        settle(guard.key().clone(), ended, guard.release())
    }
}
