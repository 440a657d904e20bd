//! Executes the steps of [`OnceJob`] until the work may start.

use super::done::{OnceStart, WindowDone};
use super::repeat::while_held;
use super::run::UnfinishedRun;
use crate::driver::ClientInner;
use crate::error::{Error, unreachable_once};
use crate::guard::Guard;
use crate::lock::Lock;
use fencelock_core::engine::SHORTEST_WAIT;
use fencelock_core::once::{Doubt, OnceJob, OnceStep, Runs, Window};
use fencelock_core::{CompletionRead, Key, LossReason};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The limit of the read before the lock is held. It saves a claim if the work is done, and nothing depends on it.
const FIRST_READ: Duration = Duration::from_secs(1);

pub(super) async fn begin(lock: Lock, window: Window, runs: Runs) -> Result<OnceStart, Error> {
    let client = &lock.client;
    let request = lock.check()?;
    let (key, owner, wait) = (request.key, request.options.owner, request.options.wait);
    let wait = wait.filter(|wait| !wait.is_zero());
    let begun = client.clock.now();
    let (mut job, mut held) = (OnceJob::new(window, runs), None::<Guard>);
    let (mut now, mut doubt) = (0, None::<Doubt>);
    loop {
        match job.step() {
            OnceStep::Read => match read(client, &key, held.as_ref(), wait.unwrap_or(Duration::MAX)).await? {
                Some(read) => {
                    now = read.now_micros;
                    doubt = job.on_read(&read);
                }
                None => job.on_unread(),
            },
            OnceStep::Acquire => {
                let waited = client.clock.now().since(begun);
                let lock = lock.clone();
                let lock = match wait {
                    Some(wait) => lock.wait(wait.saturating_sub(waited).max(SHORTEST_WAIT)),
                    None => lock,
                };
                let guard = lock.await.map_err(|error| error.after(client.clock.now().since(begun), 0))?;
                job.on_acquired(guard.fencing_token(), owner.clone());
                held = Some(guard);
            }
            OnceStep::Confirm(done) => {
                let confirm = || client.backend.confirm_completion(&key, &done);
                match &held {
                    Some(guard) => while_held(client, &guard.held(), confirm).await.map(|()| job.on_confirmed())?,
                    None => match confirm().await {
                        Ok(()) => job.on_confirmed(),
                        Err(cause) if cause.is_permanent() => return Err(unreachable_once(Some(&key), cause)),
                        Err(_) => job.on_unread(),
                    },
                }
            }
            OnceStep::AlreadyDone(done) => {
                warn(&key, doubt);
                if let Some(guard) = held {
                    // The answer does not depend on it. A release without a reply continues in the background.
                    let _ = guard.release().await;
                }
                return Ok(OnceStart::AlreadyDone(WindowDone::new(key, done, now)));
            }
            OnceStep::Write(_) | OnceStep::Run | OnceStep::Done | OnceStep::GiveUp => break,
        }
    }
    // These steps follow a read under the lock.
    let Some(guard) = held else { return Err(Error::lost(key, LossReason::Expired)) };
    warn(&key, doubt);
    let mut rest = UnfinishedRun::new(Arc::clone(client), job, &guard);
    rest.write().await?;
    Ok(OnceStart::Started(guard.with(rest)))
}

fn warn(key: &Key, doubt: Option<Doubt>) {
    if let Some(doubt) = doubt {
        tracing::warn!("{key}: {doubt}");
    }
}

/// `None` if there was no reply before the lock is held: the read under the lock decides.
async fn read(
    client: &ClientInner,
    key: &Key,
    held: Option<&Guard>,
    wait: Duration,
) -> Result<Option<CompletionRead>, Error> {
    if let Some(guard) = held {
        return while_held(client, &guard.held(), || client.backend.read_completion(key)).await.map(Some);
    }
    client.check_open()?;
    let read = timeout(wait.min(FIRST_READ), client.backend.read_completion(key)).await;
    match read.unwrap_or_else(|_| Err(client.timed_out())) {
        Ok(read) => Ok(Some(read)),
        Err(cause) if cause.is_permanent() => Err(unreachable_once(Some(key), cause)),
        Err(cause) => {
            tracing::debug!(%key, %cause, "whether the work is done is read again under the lock");
            Ok(None)
        }
    }
}
