//! Executes the steps of [`OnceJob`] until the work may start.

use super::done::{OnceStart, WindowDone};
use super::repeat::while_held;
use super::run::{OnceRun, UnfinishedRun};
use crate::driver::ClientInner;
use crate::error::{Error, unreachable_once};
use crate::guard::Guard;
use crate::lock::Lock;
use fencelock_core::once::{OnceJob, OnceStep, Runs, Window};
use fencelock_core::{CompletionRead, Key, LossReason};
use std::sync::Arc;

pub(super) async fn begin(
    client: &Arc<ClientInner>,
    lock: Lock,
    window: Window,
    runs: Runs,
) -> Result<OnceStart, Error> {
    let request = lock.check()?;
    let (key, owner) = (request.key, request.options.owner);
    let (mut job, mut now, mut held) = (OnceJob::new(window, runs), 0, None::<Guard>);
    loop {
        match job.step() {
            OnceStep::Read => match read(client, &key, held.as_ref()).await? {
                Some(read) => {
                    now = read.now_micros;
                    job.on_read(read);
                }
                None => job.on_unread(),
            },
            OnceStep::Acquire => {
                let guard = lock.clone().acquire().await?;
                job.on_acquired(guard.fencing_token(), owner.clone());
                held = Some(guard);
            }
            OnceStep::Confirm(seen) => {
                let confirmed = client.backend.confirm_completion(&key, &seen).await;
                confirmed.map_err(|cause| unreachable_once(Some(&key), cause))?;
                job.on_confirmed();
            }
            OnceStep::AlreadyDone(completion) => {
                if let Some(guard) = held {
                    // The answer does not depend on it. A release without a reply continues in the background.
                    let _ = guard.release().await;
                }
                return Ok(OnceStart::AlreadyDone(WindowDone::new(key, completion, now)));
            }
            OnceStep::Write(_) | OnceStep::Run | OnceStep::Done | OnceStep::GiveUp => break,
        }
    }
    // These steps follow a read under the lock.
    let Some(guard) = held else { return Err(Error::lost(key, LossReason::Expired)) };
    let mut rest = UnfinishedRun::new(Arc::clone(client), job, &guard);
    rest.write().await?;
    Ok(OnceStart::Started(OnceRun::new(guard, rest)))
}

/// `None` if there was no reply before the lock is held: the read under the lock decides.
async fn read(client: &ClientInner, key: &Key, held: Option<&Guard>) -> Result<Option<CompletionRead>, Error> {
    if let Some(guard) = held {
        return while_held(client, &guard.held(), || client.backend.read_completion(key)).await.map(Some);
    }
    client.check_open()?;
    match client.backend.read_completion(key).await {
        Ok(read) => Ok(Some(read)),
        Err(cause) if cause.is_permanent() => Err(unreachable_once(Some(key), cause)),
        Err(cause) => {
            tracing::debug!(%key, %cause, "whether the work is done is read again under the lock");
            Ok(None)
        }
    }
}
