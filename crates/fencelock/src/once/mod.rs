//! Work that succeeds at most once in each window of time.

mod begin;
mod done;
mod error;
mod repeat;
mod run;

pub use done::{Once, OnceStart, WindowDone};
pub use error::OnceError;
pub use run::{OnceRun, UnfinishedRun};

use crate::driver::ClientInner;
use crate::error::Error;
use crate::held::Held;
use crate::lock::Lock;
use crate::settings::{Settings, setters};
use fencelock_core::once::{Runs, Window, judge};
use fencelock_core::{ClearCompletion, Invalid, Key};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Work that succeeds at most once in each window of time, on all machines together: a job that is started by cron on fifty
/// hosts. From [`Client::once`](crate::Client::once).
///
/// Windows are aligned to 1970-01-01 00:00 UTC: a window of a day begins at midnight UTC, one of an hour at the full hour, or
/// [`offset`](Self::offset) later. That of [`Client::min_interval`](crate::Client::min_interval) begins with the last run. Only the
/// clock of the backend counts. A run belongs to the window in which it got the lock, even if it ends in a later one. The window is
/// that of the caller: a success counts if it lies in the caller's current window, whatever window its run had.
///
/// The work runs under the lock on the key, so two runs never overlap, and the others wait for the one that runs. A success is
/// recorded next to the lock, and lasts as long as the backend keeps its data: files are flushed to the disk, a quorum records it
/// on a majority, and a Redis server that loses its last second of data can lose it too. A failure, a crash or a lost lock does
/// not use up the window: the next caller runs. If a client crashes after its work and before the success is recorded, the work runs
/// again, so it should be safe to repeat; [`even_if_failed`](Self::even_if_failed) is for work that is not.
///
/// ```
/// # use std::convert::Infallible;
/// # use std::time::Duration;
/// use fencelock::{Once, OnceError};
///
/// # async fn demo() -> Result<(), OnceError<u32, Infallible>> {
/// let client = fencelock::Client::connect("memory:").await?; // or file:DIR, redis://host
/// let day = Duration::from_secs(24 * 60 * 60);
///
/// let report = client.once("nightly-report", day).run(async |held| {
///     println!("writing under token {}", held.fencing_token());
///     Ok(17)
/// });
/// match report.await? {
///     Once::Done(pages) => println!("{pages} pages"),
///     Once::AlreadyDone(done) => println!("{done}"), // who did it, and when the next window begins
/// }
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
///
/// Settings that cannot be used are reported by the method that uses them.
#[must_use = "nothing runs until `run` or `begin` is awaited"]
#[derive(Clone)]
pub struct OncePerWindow {
    pub(crate) lock: Lock,
    /// An invalid one is reported when it is used.
    window: Result<Window, Invalid>,
    runs: Runs,
}

impl OncePerWindow {
    pub(crate) fn new(client: &Arc<ClientInner>, key: &str, window: Result<Window, Invalid>) -> Self {
        // A lease that tasks share has one holder id, and the backend could not distinguish which of them writes.
        Self { lock: Lock::new(client, key, Settings::unshared()), window, runs: Runs::Succeed }
    }

    /// Lets each window begin this much later, shorter than the window: with 90 minutes, a window of a day begins at 01:30 UTC.
    /// Choose a moment at which no caller starts: a start that moves over the begin of a window, as by a clock or by daylight saving
    /// time, skips a window. [`Client::min_interval`](crate::Client::min_interval) has no windows, and takes no offset.
    pub fn offset(self, offset: Duration) -> Self {
        Self { window: self.window.and_then(|window| window.with_offset(offset)), ..self }
    }

    /// Counts starts instead of successes: a window has at most one start, even if the work fails or crashes. The start is
    /// recorded first, and nothing runs if it is unknown whether it was recorded.
    pub fn even_if_failed(self) -> Self {
        Self { runs: Runs::Start, ..self }
    }

    setters!(OncePerWindow in lock.settings);

    /// Checks the key and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key or setting, for windows shorter than 1 s or longer than 400 days, and for an offset that is
    /// not shorter than its window.
    pub fn check(&self) -> Result<(), Error> {
        self.window.clone()?;
        self.lock.check()?;
        Ok(())
    }

    /// Runs `body` under the lock, unless the work is done in this window; records its success, and releases the lock. An error
    /// of `body` leaves the window open, unless [`even_if_failed`](Self::even_if_failed) is set.
    ///
    /// # Errors
    /// [`OnceError::Lock`] with an error of [`OncePerWindow::begin`], and with [`Error::Lost`] if the lock was lost before `body`
    /// ended; [`OnceError::Body`] with the error of the body; [`OnceError::NotCounted`] with the value of the body if its success
    /// could not be recorded.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body`, releases the lock in the background, and leaves the window open, unless the success is
    /// being recorded.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<Once<T>, OnceError<T, E>>
    where
        F: FnOnce(Held) -> B,
        B: Future<Output = Result<T, E>>,
    {
        let run = match self.begin().await? {
            OnceStart::Started(run) => run,
            OnceStart::AlreadyDone(done) => return Ok(Once::AlreadyDone(done)),
        };
        let ended = tokio::select! {
            biased;
            ended = body(run.held()) => ended,
            reason = run.lost() => return Err(Error::lost(run.key().clone(), reason).into()),
        };
        match ended {
            Ok(value) => match run.succeed().await {
                Ok(()) => Ok(Once::Done(value)),
                Err(error) => Err(OnceError::NotCounted { value, error }),
            },
            Err(error) => {
                run.give_back().await;
                Err(OnceError::Body(error))
            }
        }
    }

    /// Acquires the lock for a run, unless the work is done in this window. The run counts after [`OnceRun::succeed`].
    ///
    /// # Errors
    /// The errors of [`Lock::acquire`]; [`Error::Lost`]; [`Error::Unreachable`] if it is unknown whether the work is done, or
    /// whether its start was recorded; [`Error::Config`] for the errors of [`OncePerWindow::check`], for a backend that records
    /// nothing, and if something is stored there that this version cannot read. Then nothing runs.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or releases the lock in the background.
    /// With [`even_if_failed`](Self::even_if_failed), the start may be recorded.
    pub async fn begin(self) -> Result<OnceStart, Error> {
        let window = self.window?;
        // The future of a claim is large.
        Box::pin(begin::begin(self.lock, window, self.runs)).await
    }

    /// Who has done the work, if it is done in this window; `None` otherwise. The answer may be out of date when it arrives. It
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key, a backend that records nothing, and something that this version cannot read;
    /// [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn done(&self) -> Result<Option<WindowDone>, Error> {
        done(&self.lock.client, &self.lock.key, Some(self.window.clone()?)).await
    }

    /// Removes the record that `done` describes, if it is not of a later run, so that the work may run again in this window. Returns
    /// whether it was removed. A run that is in progress is not affected.
    ///
    /// # Errors
    /// The errors of [`OncePerWindow::done`]. On a quorum every node must answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record may or may not be removed; calling it again is harmless.
    pub async fn clear(&self, done: &WindowDone) -> Result<bool, Error> {
        let client = &self.lock.client;
        client.check_process()?;
        let key = Key::new(&self.lock.key)?;
        let cleared = client.backend.clear_completion(&key, &done.done.completion).await;
        let cleared = cleared.map_err(|cause| client.failed(Some(&key), cause))?;
        Ok(cleared == ClearCompletion::Cleared)
    }
}

/// The success that counts in this window; without a window, in those that its callers have named.
pub(crate) async fn done(client: &ClientInner, key: &str, window: Option<Window>) -> Result<Option<WindowDone>, Error> {
    client.check_process()?;
    let key = Key::new(key)?;
    let read = client.backend.read_completion(&key).await.map_err(|cause| client.failed(Some(&key), cause))?;
    Ok(judge(window, &read).done.map(|done| WindowDone::new(key, done, read.now_micros)))
}

impl fmt::Debug for OncePerWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OncePerWindow")
            .field("key", &self.lock.key)
            .field("window", &self.window)
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}
