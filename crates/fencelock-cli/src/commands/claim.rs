use crate::context::Context;
use crate::failure::Failure;
use crate::nesting::Nesting;
use crate::plan::OnceRule;
use crate::progress::Progress;
use crate::report::Event;
use crate::wait_status::WaitStatus;
use fencelock::{Client, Error, Guards, Mode, OnceStart, UnfinishedRun, WindowDone};
use std::sync::Arc;
use std::time::Duration;

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
pub(super) async fn check(key: &str, nested_ok: bool, client: &Client, context: &Context) -> Result<String, Failure> {
    let (backend, name) = (context.identity(client)?, client.name());
    if !nested_ok {
        Nesting::of_this_process().check(key, &backend, client).await?;
    }
    context.report.emit(&Event::Backend { key, backend: &name });
    Ok(backend)
}

/// Waits for the locks.
pub(super) async fn claim(
    keys: &[String],
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    let claimed = claim_once(keys, request, client, progress).await;
    match &claimed {
        Ok(_) if keys.len() > 1 => progress.done("were acquired"),
        Ok(_) => progress.done("was acquired"),
        Err(_) => progress.clear(),
    }
    claimed
}

/// A claim of `run --once-per`.
pub(crate) enum Begun {
    /// The command runs now.
    Run(Guards, UnfinishedRun),
    /// It has succeeded in this window.
    AlreadyDone(WindowDone),
}

/// Like [`claim`], for a command that succeeds at most once in each window.
pub(super) async fn begin(
    key: &str,
    once: OnceRule,
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Begun, Error> {
    let mut work = once.window.work(key, client).ttl(request.ttl);
    if once.even_if_failed {
        work = work.even_if_failed();
    }
    if let Some(wait) = request.wait {
        work = work.wait(wait);
    }
    // Without a wait, the error reports the holder.
    if request.wait != Some(Duration::ZERO) {
        let (waits, troubles) = (Arc::clone(progress), Arc::clone(progress));
        work = work.on_wait(move |waiting| waits.waiting(&WaitStatus::from(waiting)));
        work = work.on_trouble(move |cause| troubles.trouble(cause));
    }
    if let Some(label) = request.label {
        work = work.label(label);
    }
    let begun = work.begin().await.inspect_err(|_| progress.clear())?;
    Ok(match begun {
        OnceStart::Started(run) => {
            progress.done("was acquired");
            let (guard, rest) = run.into_parts();
            Begun::Run(guard.into(), rest)
        }
        OnceStart::AlreadyDone(done) => {
            progress.clear();
            Begun::AlreadyDone(done)
        }
    })
}

async fn claim_once(
    keys: &[String],
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    if let (Mode::Permits { weight, limit, .. }, [key]) = (request.mode, keys) {
        return claim_permits(key, (weight, limit), request, client, progress).await;
    }
    let mut lock = client.lock_all(keys).ttl(request.ttl);
    if request.mode == Mode::Shared {
        lock = lock.shared();
    }
    if let Some(wait) = request.wait {
        lock = lock.wait(wait);
    }
    // Without a wait, the error reports the holder.
    if request.wait != Some(Duration::ZERO) {
        let (waits, troubles) = (Arc::clone(progress), Arc::clone(progress));
        lock = lock.on_wait(move |waiting| waits.waiting(&WaitStatus::from(waiting)));
        lock = lock.on_trouble(move |cause| troubles.trouble(cause));
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
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    let mut semaphore = client.semaphore(key, limit).ttl(request.ttl);
    if let Some(wait) = request.wait {
        semaphore = semaphore.wait(wait);
    }
    if request.wait != Some(Duration::ZERO) {
        let (waits, troubles) = (Arc::clone(progress), Arc::clone(progress));
        semaphore = semaphore.on_wait(move |waiting| waits.waiting(&WaitStatus::from(waiting)));
        semaphore = semaphore.on_trouble(move |cause| troubles.trouble(cause));
    }
    if let Some(label) = request.label {
        semaphore = semaphore.label(label);
    }
    semaphore.acquire(weight).await.map(Guards::from)
}
