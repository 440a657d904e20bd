use super::{Guard, Held, OnThread};
use crate::lock::report_unconfirmed;
use crate::{Error, Once, OnceError, Unknown, Waiting, WindowDone};
use std::sync::Arc;
use std::time::Duration;

/// Work that succeeds at most once in each window of time. The async type is [`crate::OncePerWindow`], which describes windows and
/// guarantees.
///
/// ```
/// use fencelock::blocking::Client;
/// use fencelock::{Once, OnceError};
/// use std::time::Duration;
///
/// let client = Client::connect("memory:")?;
/// let day = Duration::from_secs(24 * 60 * 60);
/// match client.once("blocking-report", day).run(|_held| Ok::<_, std::io::Error>(17))? {
///     Once::Done(pages) => println!("{pages} pages"),
///     Once::AlreadyDone(done) => println!("{done}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing runs until `run` or `begin` is called"]
#[derive(Debug, Clone)]
pub struct OncePerWindow(pub(super) OnThread<crate::OncePerWindow>);

/// The start of a run, or the reason why there is none.
pub type OnceStart = crate::OnceStart<OnceRun>;

/// A run of work under its lock: the [`Guard`] of the lock, and the run. It counts after [`OnceRun::succeed`]. Dropping it releases
/// the lock in the background and leaves the window open. The async type is [`crate::OnceRun`].
pub type OnceRun = Guard<crate::UnfinishedRun>;

/// The part of a run that is left when its guard was taken from it: [`OnceRun::into_parts`].
pub type UnfinishedRun = OnThread<crate::UnfinishedRun>;

impl OncePerWindow {
    /// Counts starts instead of successes: a window has at most one start, even if the work fails or crashes.
    pub fn even_if_failed(self) -> Self {
        Self(self.0.map(crate::OncePerWindow::even_if_failed))
    }

    /// Lets each window begin this much later, shorter than the window: see [`crate::OncePerWindow::offset`].
    pub fn offset(self, offset: Duration) -> Self {
        Self(self.0.map(|once| once.offset(offset)))
    }

    /// How long the lease outlasts this process if it dies: see [`super::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.map(|once| once.ttl(ttl)))
    }

    /// Waits at most this long for a run of another client: see [`super::Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.map(|once| once.wait(wait)))
    }

    /// The purpose, which is shown to other clients while the work runs and after it: at most 128 bytes.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.map(|once| once.label(label)))
    }

    /// Ends a run that hangs. It does not count as a success.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.map(|once| once.max_hold(max_hold)))
    }

    /// Calls `on_wait` after each reply while a run of another client is waited for, on the client's thread. It must return
    /// quickly.
    pub fn on_wait(self, on_wait: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|once| once.on_wait(on_wait)))
    }

    /// Calls `on_trouble` after each failed try for the lock while trying continues, on the client's thread. It must return
    /// quickly.
    pub fn on_trouble(self, on_trouble: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        Self(self.0.map(|once| once.on_trouble(on_trouble)))
    }

    /// Checks the key and the settings without a request.
    ///
    /// # Errors
    /// See [`crate::OncePerWindow::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.0.inner.check()
    }

    /// Runs `body` on this thread under the lock, unless the work is done in this window; records its success, and releases the
    /// lock. A closure cannot be interrupted, so it should call [`Held::check`] where it can still stop.
    ///
    /// # Errors
    /// See [`crate::OncePerWindow::run`].
    pub fn run<T, E>(self, body: impl FnOnce(Held) -> Result<T, E>) -> Result<Once<T>, OnceError<T, E>> {
        let run = match self.begin()? {
            OnceStart::Started(run) => run,
            OnceStart::AlreadyDone(done) => return Ok(Once::AlreadyDone(done)),
        };
        match body(run.held()) {
            Ok(value) => match run.succeed() {
                Ok(()) => Ok(Once::Done(value)),
                Err(error) => Err(OnceError::NotCounted { value, error }),
            },
            Err(error) => {
                run.give_back();
                Err(OnceError::Body(error))
            }
        }
    }

    /// Acquires the lock for a run, unless the work is done in this window. The run counts after [`OnceRun::succeed`].
    ///
    /// # Errors
    /// See [`crate::OncePerWindow::begin`].
    pub fn begin(self) -> Result<OnceStart, Error> {
        let OnThread { inner, thread } = self.0.run(crate::OncePerWindow::begin)?;
        Ok(match inner {
            crate::OnceStart::Started(inner) => OnceStart::Started(OnThread { inner, thread }),
            crate::OnceStart::AlreadyDone(done) => OnceStart::AlreadyDone(done),
        })
    }

    /// Who has done the work, if it is done in this window; `None` otherwise. It changes nothing.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key, a backend that records nothing, and something that this version cannot read;
    /// [`Error::Unreachable`].
    pub fn done(&self) -> Result<Option<WindowDone>, Error> {
        self.0.ask(async move |once| once.done().await)
    }

    /// Removes the record that `done` describes, if it is not of a later run. Returns whether it was removed.
    ///
    /// # Errors
    /// The errors of [`OncePerWindow::done`]. On a quorum every node must answer.
    pub fn clear(&self, done: &WindowDone) -> Result<bool, Error> {
        let done = done.clone();
        self.0.ask(async move |once| once.clear(&done).await)
    }
}

impl OnceRun {
    /// Records the success, and releases the lock.
    ///
    /// # Errors
    /// See [`crate::OnceRun::succeed`].
    pub fn succeed(self) -> Result<(), Error> {
        self.run(crate::OnceRun::succeed).map(drop)
    }

    /// Releases the lock. The window stays open, unless starts count. A release without a reply continues in the background.
    pub fn give_back(self) {
        let key = self.key().clone();
        if let Err(error) = self.release() {
            report_unconfirmed(&key, &error);
        }
    }

    /// The guard of the lock, and what is left of the run. Release the guard after [`UnfinishedRun::succeed`].
    pub fn into_parts(self) -> (Guard, UnfinishedRun) {
        let Self { inner, thread } = self;
        let (guard, rest) = inner.into_parts();
        (OnThread { inner: guard, thread: Arc::clone(&thread) }, OnThread { inner: rest, thread })
    }
}

impl UnfinishedRun {
    /// Records the success, while the guard is held.
    ///
    /// # Errors
    /// See [`crate::OnceRun::succeed`].
    pub fn succeed(self) -> Result<(), Error> {
        self.run(crate::UnfinishedRun::succeed).map(drop)
    }
}
