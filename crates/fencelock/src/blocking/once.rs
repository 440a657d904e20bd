use super::{Facade, Guard, Held, OnThread, facade};
use crate::lock::report_unconfirmed;
use crate::settings::setters;
use crate::{Error, Once, OnceError, WindowDone};
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
pub type OncePerWindow = OnThread<crate::OncePerWindow>;

/// The start of a run, or the reason why there is none.
pub type OnceStart = crate::OnceStart<OnceRun>;

/// A run of work under its lock: the [`Guard`] of the lock, and the run. It counts after [`OnceRun::succeed`]. Dropping it releases
/// the lock in the background and leaves the window open. The async type is [`crate::OnceRun`].
pub type OnceRun = Guard<crate::UnfinishedRun>;

/// The part of a run that is left when its guard was taken from it: [`OnceRun::into_parts`].
pub type UnfinishedRun = OnThread<crate::UnfinishedRun>;

impl OncePerWindow {
    facade! { OncePerWindow:
        /// Counts starts instead of successes: a window has at most one start, even if the work fails or crashes.
        pub fn even_if_failed(self) -> Self;

        /// Lets each window begin this much later, shorter than the window.
        pub fn offset(self, offset: Duration) -> Self;
    }

    setters!(OncePerWindow in inner.lock.settings);

    facade! { OncePerWindow:
        /// Checks the key and the settings without a request.
        pub fn check(&self) -> Result<(), Error>;

        /// Acquires the lock for a run, unless the work is done in this window. The run counts after [`OnceRun::succeed`].
        pub async fn begin(self) -> Result<OnceStart, Error>;

        /// Who has done the work, if it is done in this window; `None` otherwise. It changes nothing.
        pub async fn done(&self) -> Result<Option<WindowDone>, Error>;

        /// Removes the record that `done` describes, if it is not of a later run. Returns whether it was removed.
        pub async fn clear(&self, done: &WindowDone = done.clone() => &done) -> Result<bool, Error>;
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
}

impl Facade<crate::OnceStart> for OnceStart {
    fn of(OnThread { inner, thread }: OnThread<crate::OnceStart>) -> Self {
        match inner {
            crate::OnceStart::Started(run) => Self::Started(OnThread { inner: run, thread }),
            crate::OnceStart::AlreadyDone(done) => Self::AlreadyDone(done),
        }
    }
}

impl OnceRun {
    facade! { OnceRun:
        /// Records the success, and releases the lock.
        pub async fn succeed(self) -> Result<(), Error>;
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
    facade! { UnfinishedRun:
        /// Records the success, while the guard is held.
        pub async fn succeed(self) -> Result<(), Error>;
    }
}
