use crate::context::Context;
use crate::failure::Failure;
use crate::nesting::{Nesting, place};
use crate::progress::Progress;
use crate::report::Event;
use crate::wait_status::WaitStatus;
use fencelock::{Client, Error, Guard};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Between claims that each lasted as long as the TTL, which may be short.
const PAUSE: Duration = Duration::from_millis(100);

/// A lock that somebody wants, and for how long it is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) key: &'a str,
    pub(super) ttl: Duration,
    pub(super) label: Option<&'a str>,
    /// `None` if there is no limit.
    pub(super) wait: Option<Duration>,
}

/// Refuses what would wait for this program's own end, and tells where the lock lives.
pub(super) fn check(key: &str, nested_ok: bool, client: &Client, context: &Context) -> Result<String, Failure> {
    let place = place(&client.name(), &context.url()?);
    if !nested_ok {
        Nesting::of_this_process().check(key, &place)?;
    }
    context.report.tell(&Event::Place { key, place: &client.name() });
    Ok(place)
}

/// Waits for a lock, also while its servers are away: the limit counts from the beginning, whatever there is to wait for.
pub(super) async fn claim(wish: Wish<'_>, client: &Client, progress: &Arc<Progress>) -> Result<Guard, Error> {
    let claimed = until_answered(wish, client, progress).await;
    match &claimed {
        Ok(_) => progress.done("is held now"),
        Err(_) => progress.clear(),
    }
    claimed
}

/// A lock that cannot be asked for as long as its TTL ends its claim, which suits a program that has something else to do.
async fn until_answered(wish: Wish<'_>, client: &Client, progress: &Arc<Progress>) -> Result<Guard, Error> {
    let mut tries = 0;
    loop {
        let left = wish.wait.map(|limit| limit.saturating_sub(progress.waited()));
        match once(wish, left, client, progress).await {
            Err(mut error) if error.is_unreachable() => {
                tries = lasted(&mut error, progress.waited(), tries);
                if wish.wait.is_some_and(|limit| progress.waited() >= limit) {
                    return Err(error);
                }
                sleep(PAUSE).await;
            }
            claimed => return claimed,
        }
    }
}

/// The error of the last claim, told as that of the whole wait. How often it was tried in all.
pub(super) fn lasted(error: &mut Error, waited: Duration, tries_before: u32) -> u32 {
    let Error::Unreachable { waited: last, attempts, .. } = error else { return tries_before };
    (*last, *attempts) = (waited, attempts.saturating_add(tries_before));
    *attempts
}

async fn once(
    wish: Wish<'_>,
    wait: Option<Duration>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guard, Error> {
    let mut lock = client.lock(wish.key).ttl(wish.ttl);
    if let Some(wait) = wait {
        lock = lock.wait(wait);
    }
    // Who does not wait has the answer as the error.
    if wish.wait != Some(Duration::ZERO) {
        let (told, troubled) = (Arc::clone(progress), Arc::clone(progress));
        lock = lock.on_wait(move |waiting| told.waiting(&WaitStatus::from(waiting)));
        lock = lock.on_trouble(move |cause| troubled.trouble(cause));
    }
    if let Some(label) = wish.label {
        lock = lock.label(label);
    }
    lock.acquire().await
}
