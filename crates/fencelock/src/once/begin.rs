//! Carries out what [`OnceJob`] decides, until the work may start.

use super::done::{OnceStart, WindowDone};
use super::run::{OnceRun, UnfinishedRun};
use crate::driver::ClientInner;
use crate::error::{Error, could_not_tell, unreachable_once};
use crate::guard::{Guard, Held};
use crate::lock::Lock;
use fencelock_core::once::{OnceJob, OnceStep, Runs, Window};
use fencelock_core::{Answer, CompletionRead, Key, LossReason};
use std::sync::Arc;
use std::time::Duration;

/// While the lock is held, a request without a reply is repeated after this pause, for about this time.
const PAUSE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);

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
                    // The answer does not depend on it. A release without a reply goes on in the background.
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

/// Sends a request until there is a reply, for as long as the lock is held.
pub(super) async fn while_held<'a, T>(
    client: &ClientInner,
    held: &Held,
    mut request: impl FnMut() -> Answer<'a, T>,
) -> Result<T, Error> {
    let (begun, mut attempts) = (client.clock.now(), 0);
    loop {
        attempts += 1;
        let cause = tokio::select! {
            biased;
            reason = held.lost() => return Err(Error::lost(held.key().clone(), reason)),
            reply = request() => match reply {
                Ok(reply) => return Ok(reply),
                Err(cause) => cause,
            },
        };
        let waited = client.clock.now().since(begun);
        if cause.is_permanent() || waited >= PATIENCE {
            return Err(could_not_tell(held.key(), cause, waited, attempts));
        }
        tracing::debug!(key = %held.key(), %cause, "no reply about the completion, trying again");
        tokio::time::sleep(PAUSE).await;
    }
}
