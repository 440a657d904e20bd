use crate::context::Context;
use crate::failure::Failure;
use crate::nesting::{Nesting, place};
use crate::progress::Progress;
use crate::report::Event;
use crate::wait_status::WaitStatus;
use fencelock::{Client, Error, Guards, Mode, Waiting};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between claims. A claim lasts as long as the TTL, which may be short.
const PAUSE: Duration = Duration::from_millis(100);

/// The settings of a claim, and how long to wait for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimRequest<'a> {
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) label: Option<&'a str>,
    /// `None` if there is no limit.
    pub(super) wait: Option<Duration>,
}

/// Refuses a lock that this program runs under, and reports the backend.
pub(super) fn check(key: &str, nested_ok: bool, client: &Client, context: &Context) -> Result<String, Failure> {
    let place = place(&client.name(), &context.url()?);
    if !nested_ok {
        Nesting::of_this_process().check(key, &place)?;
    }
    context.report.tell(&Event::Place { key, place: &client.name() });
    Ok(place)
}

/// Waits for the locks, also while their servers are unreachable. The limit counts from the start.
pub(super) async fn claim(
    keys: &[String],
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    let claimed = retry_unreachable(keys, request, client, progress).await;
    match &claimed {
        Ok(_) if keys.len() > 1 => progress.done("are held now"),
        Ok(_) => progress.done("is held now"),
        Err(_) => progress.clear(),
    }
    claimed
}

/// Retries claims that end because the servers were unreachable for the TTL.
async fn retry_unreachable(
    keys: &[String],
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    let mut tries = 0;
    loop {
        let left = request.wait.map(|limit| limit.saturating_sub(progress.waited()));
        match claim_once(keys, request, left, client, progress).await {
            Err(mut error) if error.is_unreachable() => {
                tries = extend_error(&mut error, progress.waited(), tries);
                if request.wait.is_some_and(|limit| progress.waited() >= limit) {
                    return Err(error);
                }
                sleep(PAUSE).await;
            }
            claimed => return claimed,
        }
    }
}

/// Extends the error of the last claim to the whole wait. Returns the total number of attempts.
pub(super) fn extend_error(error: &mut Error, waited: Duration, tries_before: u32) -> u32 {
    let Error::Unreachable { waited: last, attempts, .. } = error else { return tries_before };
    (*last, *attempts) = (waited, attempts.saturating_add(tries_before));
    *attempts
}

async fn claim_once(
    keys: &[String],
    request: ClaimRequest<'_>,
    wait: Option<Duration>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    if let (Mode::Permits { weight, limit, .. }, [key]) = (request.mode, keys) {
        return claim_permits(key, (weight, limit), request, wait, client, progress).await;
    }
    let mut lock = client.lock_all(keys).ttl(request.ttl);
    if request.mode == Mode::Shared {
        lock = lock.shared();
    }
    if let Some(wait) = wait {
        lock = lock.wait(wait);
    }
    // Without a wait, the error reports the holder.
    if request.wait != Some(Duration::ZERO) {
        let (told, troubled) = (Arc::clone(progress), Arc::clone(progress));
        lock = lock.on_wait(move |waiting| tell(&told, waiting));
        lock = lock.on_trouble(move |cause| troubled.trouble(cause));
    }
    if let Some(label) = request.label {
        lock = lock.label(label);
    }
    lock.acquire().await
}

async fn claim_permits(
    key: &str,
    (weight, limit): (u32, u32),
    request: ClaimRequest<'_>,
    wait: Option<Duration>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    let mut semaphore = client.semaphore(key, limit).ttl(request.ttl);
    if let Some(wait) = wait {
        semaphore = semaphore.wait(wait);
    }
    if request.wait != Some(Duration::ZERO) {
        let (told, troubled) = (Arc::clone(progress), Arc::clone(progress));
        semaphore = semaphore.on_wait(move |waiting| tell(&told, waiting));
        semaphore = semaphore.on_trouble(move |cause| troubled.trouble(cause));
    }
    if let Some(label) = request.label {
        semaphore = semaphore.label(label);
    }
    semaphore.acquire(weight).await.map(Guards::from)
}

fn tell(progress: &Progress, waiting: &Waiting) {
    progress.waiting(&WaitStatus::from(waiting));
}
