use super::done::{OnceStart, WindowDone};
use super::repeat::while_held;
use super::run::UnfinishedRun;
use crate::driver::ClientInner;
use crate::error::{Error, unreachable_once};
use crate::lock::Lock;
use fencelock_core::engine::WaitLimit;
use fencelock_core::once::{Doubt, Judgement, Runs, Window, judge};
use fencelock_core::{Completion, Key, Unknown};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

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
pub(super) async fn begin(lock: Lock, window: Window, runs: Runs) -> Result<OnceStart, Error> {
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
        return Ok(OnceStart::AlreadyDone(WindowDone::new(key, done, read.now_micros)));
    }
    warn(&key, doubt);
    let granted = read.now_micros;
    let completion = Completion::new(window.end_of(granted), guard.fencing_token(), granted, owner);
    let run = UnfinishedRun::new(Arc::clone(client), runs, completion, &guard);
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
        WindowDone::new(key.clone(), done, read.now_micros)
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
