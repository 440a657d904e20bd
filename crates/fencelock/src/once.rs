//! Work that succeeds at most once in each window of time.

use crate::driver::ClientInner;
use crate::error::{Error, unconfirmed, unreachable_once};
use crate::guard::{Guard, Held};
use crate::lock::{Lock, report_unconfirmed};
use crate::run::work_error;
use crate::settings::{LockSettings, setters};
use crate::window_done::WindowDone;
use fencelock_core::engine::WaitLimit;
use fencelock_core::once::{Doubt, Judgement, Runs, Window, judge};
use fencelock_core::{ClearCompletion, Completion, Invalid, Key, LossReason, Unknown};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

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
#[derive(Debug, Clone)]
pub struct OncePerWindow {
    pub(crate) lock: Lock,
    /// An invalid one is reported when it is used.
    window: Result<Window, Invalid>,
    runs: Runs,
}

impl OncePerWindow {
    pub(crate) fn new(client: &Arc<ClientInner>, key: &str, window: Result<Window, Invalid>) -> Self {
        // A lease that tasks share has one holder id, and the backend could not distinguish which of them writes.
        Self { lock: Lock::new(client, key, LockSettings::unshared()), window, runs: Runs::Succeed }
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
            reason = run.lost() => return Err(Error::from(run.held().loss_by(reason)).into()),
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
        Box::pin(begin(self.lock, window, self.runs)).await
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
        let key = Key::new(&self.lock.key)?;
        let cleared = client.ask(Some(&key), client.backend.clear_completion(&key, &done.done.completion)).await?;
        Ok(cleared == ClearCompletion::Cleared)
    }
}

/// The success that counts in this window; without a window, in those that its callers have named.
pub(crate) async fn done(client: &ClientInner, key: &str, window: Option<Window>) -> Result<Option<WindowDone>, Error> {
    let key = Key::new(key)?;
    let read = client.ask(Some(&key), client.backend.read_completion(&key)).await?;
    Ok(judge(window, &read).done.map(|done| WindowDone { key, done, now_micros: read.now_micros }))
}

/// A run of work under its lock, from [`OncePerWindow::begin`](OncePerWindow::begin): the [`Guard`] of the lock, and the
/// run. It counts after [`OnceRun::succeed`]. Dropping it releases the lock in the background and leaves the window open.
pub type OnceRun = Guard<UnfinishedRun>;

/// The part of a run that is left when its guard was taken from it: [`OnceRun::into_parts`].
#[must_use = "a run counts only if its success is recorded"]
#[derive(Debug)]
pub struct UnfinishedRun {
    client: Arc<ClientInner>,
    runs: Runs,
    completion: Completion,
    held: Held,
}

impl OnceRun {
    /// Records the success, and releases the lock. A write without a reply is repeated for 5 s, while the lock is held.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before the success was recorded; [`Error::Unreachable`] and
    /// [`Error::NotReplicated`] if it is unknown whether it was recorded; [`Error::Config`] if the backend refuses it. Then the work
    /// may run again in this window.
    ///
    /// # Cancel safety
    /// If the future is dropped, the success may or may not be recorded. The lock is released in the background.
    pub async fn succeed(self) -> Result<(), Error> {
        let (guard, rest) = self.into_parts();
        rest.succeed().await?;
        release(guard).await;
        Ok(())
    }

    /// Releases the lock. The window stays open, unless starts count.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background.
    pub async fn give_back(self) {
        release(self.into_guard()).await;
    }

    /// The guard of the lock, and what is left of the run. Release the guard after [`UnfinishedRun::succeed`].
    pub fn into_parts(self) -> (Guard, UnfinishedRun) {
        self.into_payload()
    }
}

/// The result of a run does not depend on the release. A release without a reply continues in the background.
async fn release(guard: Guard) {
    let key = guard.key().clone();
    if let Err(error) = guard.release().await {
        report_unconfirmed(&key, &error);
    }
}

impl UnfinishedRun {
    /// Records the success, while the guard is held: see [`OnceRun::succeed`].
    ///
    /// # Errors
    /// See [`OnceRun::succeed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the success may or may not be recorded.
    pub async fn succeed(self) -> Result<(), Error> {
        self.held.check()?;
        match self.runs {
            Runs::Start => Ok(()),
            _ => self.write().await,
        }
    }

    /// Writes the completion.
    async fn write(&self) -> Result<(), Error> {
        let (client, key, holder) = (&self.client, self.held.key(), self.held.holder());
        let write = || client.backend.write_completion(key, &holder, &self.completion);
        let reply = while_held(client, &self.held, write).await?;
        if reply.counts(self.held.is_held()) {
            return Ok(());
        }
        // The backend knows of the loss before this client.
        Err(self.held.loss().unwrap_or_else(|| self.held.loss_by(LossReason::Expired)).into())
    }
}

/// The limit of the read before the lock is held. It saves a claim if the work is done, and nothing depends on it.
const FIRST_READ: Duration = Duration::from_secs(1);

/// Acquires the lock for a run, unless the work is done. The rules:
///
/// - A completion is read before the lock is acquired, which saves the lock, and again under the lock, which decides.
/// - The window is the one of the read under the lock. A run that ends in a later window still completes its own.
/// - The completion is written while the lock is held, and before it is released. A backend refuses the write of a client that
///   does not hold the lock.
/// - A completion that was read is confirmed before the work counts as done: on a quorum, it may be on too few nodes, and its run may
///   have named a shorter window, so that a backend would forget it within the window of this caller.
/// - With [`Runs::Start`] it is written before the run. If it is unknown whether it was written, nothing is run.
/// - A run counts only if its lock was held when the write was confirmed.
async fn begin(lock: Lock, window: Window, runs: Runs) -> Result<OnceStart, Error> {
    let client = &lock.client;
    let request = lock.check()?;
    let (key, owner) = (request.key, request.options.owner);
    // A try waits for the first read, and then claims without a wait.
    let wait = WaitLimit::new(request.options.wait, client.clock.now());
    client.check_open()?;
    if let Some(done) = done_before(client, &key, window, wait).await? {
        return Ok(OnceStart::AlreadyDone(done));
    }
    let mut lock = lock.clone();
    lock.settings.wait = wait.left(client.clock.now());
    let guard = lock.await.map_err(|error| error.after(wait.waited(client.clock.now()), 0))?;
    let held = guard.held();
    let read = while_held(client, &held, || client.backend.read_completion(&key)).await?;
    let Judgement { done, doubt, .. } = judge(Some(window), &read);
    if let Some(done) = done {
        while_held(client, &held, || client.backend.confirm_completion(&key, &done)).await?;
        warn(&key, doubt);
        // The answer does not depend on it. A release without a reply continues in the background.
        let _ = guard.release().await;
        return Ok(OnceStart::AlreadyDone(WindowDone { key, done, now_micros: read.now_micros }));
    }
    warn(&key, doubt);
    let granted = read.now_micros;
    let completion = Completion::new(window.end_of(granted), guard.fencing_token(), granted, owner);
    let run = UnfinishedRun { client: Arc::clone(client), runs, completion, held };
    if runs == Runs::Start {
        run.write().await?;
    }
    Ok(OnceStart::Started(guard.with(run)))
}

/// The success that counts, before the lock is requested; `None` also without a reply: the read under the lock decides.
async fn done_before(
    client: &ClientInner,
    key: &Key,
    window: Window,
    wait: WaitLimit,
) -> Result<Option<WindowDone>, Error> {
    let limit = wait.end().since(client.clock.now()).min(FIRST_READ);
    let read = timeout(limit, client.backend.read_completion(key)).await.unwrap_or_else(|_| Err(client.timed_out()));
    let Some(read) = unless_silent(key, read)? else { return Ok(None) };
    let Judgement { done: Some(done), doubt, .. } = judge(Some(window), &read) else { return Ok(None) };
    let confirmed = unless_silent(key, client.backend.confirm_completion(key, &done).await)?;
    Ok(confirmed.map(|()| {
        warn(key, doubt);
        WindowDone { key: key.clone(), done, now_micros: read.now_micros }
    }))
}

/// `None` without a reply. A refusal is an error.
fn unless_silent<T>(key: &Key, reply: Result<T, Unknown>) -> Result<Option<T>, Error> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(cause) if cause.is_permanent() => Err(unreachable_once(Some(key), cause)),
        Err(cause) => {
            tracing::debug!(%key, %cause, "whether the work is done is read again under the lock");
            Ok(None)
        }
    }
}

fn warn(key: &Key, doubt: Option<Doubt>) {
    if let Some(doubt) = doubt {
        tracing::warn!("{key}: {doubt}");
    }
}

/// While the lock is held, a request without a reply is repeated after this pause, for about this time.
const PAUSE: Duration = Duration::from_millis(100);
const RETRY_LIMIT: Duration = Duration::from_secs(5);

/// Sends a request until there is a reply, for as long as the lock is held.
async fn while_held<T, F: Future<Output = Result<T, Unknown>>>(
    client: &ClientInner,
    held: &Held,
    mut request: impl FnMut() -> F,
) -> Result<T, Error> {
    let (begun, mut attempts) = (client.clock.now(), 0);
    loop {
        attempts += 1;
        let cause = tokio::select! {
            biased;
            reason = held.lost() => return Err(held.loss_by(reason).into()),
            reply = request() => match reply {
                Ok(reply) => return Ok(reply),
                Err(cause) => cause,
            },
        };
        let waited = client.clock.now().since(begun);
        if cause.is_permanent() || waited >= RETRY_LIMIT {
            return Err(unconfirmed(held.key(), cause, waited, attempts));
        }
        tracing::debug!(key = %held.key(), %cause, "no reply about the completion, trying again");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The result of work that succeeds at most once in each window.
///
/// Exhaustive: the work was done by this call, or before.
#[must_use = "it shows whether the work was done here"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once<T> {
    /// The work was done by this call, with this value.
    Done(T),
    /// It was done before in this window. Nothing was run.
    AlreadyDone(WindowDone),
}

/// The start of a run, or the reason why there is none. Exhaustive for the same reason as [`Once`].
#[must_use = "a run that is dropped does not count"]
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is matched right away, and moved once for each window")]
pub enum OnceStart<R = OnceRun> {
    /// Run the work now.
    Started(R),
    /// It was done before in this window.
    AlreadyDone(WindowDone),
}

/// Why [`OncePerWindow::run`](OncePerWindow::run) returned no reliable value.
///
/// Exhaustive, because there are exactly three cases. `{:#}` uses the alternate form of the error that it contains.
#[must_use = "it shows whether the work was done, and whether it counts"]
#[derive(Clone, PartialEq, Eq)]
pub enum OnceError<T, E> {
    /// The body did not complete: it was not called, or the lock was lost ([`Error::Lost`]) and the body dropped.
    Lock(Error),
    /// The body returned this error. The window stays open, unless starts count.
    Body(E),
    /// The body returned this value, but its success may not be recorded: the lock was lost, or the backend did not reply. The work
    /// may run again in this window.
    NotCounted {
        /// The value of the body.
        value: T,
        /// The reason.
        error: Error,
    },
}

work_error! {
    OnceError, NotCounted { error },
    |f| f.write_str("the work is done, but its success is not recorded: ").and_then(|()| error.fmt(f)), error.source()
}

#[cfg(test)]
mod error_tests {
    use super::*;
    use fencelock_core::{Fault, Key, LossReason, Unknown};

    #[test]
    fn no_text_is_printed_twice_in_a_chain() {
        struct Opaque;
        let error = Error::unreachable(Unknown::new("a:1", Fault::Timeout, ""));
        let error: OnceError<_, std::io::Error> = OnceError::NotCounted { value: Opaque, error };
        let texts: Vec<String> = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source())
            .map(ToString::to_string)
            .collect();
        let first = "the work is done, but its success is not recorded: the backend of the locks cannot be reached";
        assert_eq!(texts, [first, "a:1: no answer in time"]);
        assert_eq!([format!("{error:#}"), format!("{error:?}")], [texts.join(": "), texts.join(": ")]);
    }

    #[test]
    fn a_value_that_cannot_be_shown_is_left_out() {
        struct Opaque;
        let error = Error::lost(Key::new("k").unwrap(), LossReason::Expired);
        let error: OnceError<_, std::io::Error> = OnceError::NotCounted { value: Opaque, error };
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
