use crate::context::Context;
use crate::exit::Failure;
use crate::nesting::Nesting;
use crate::plan::OnceRule;
use crate::progress::Progress;
use crate::report::{Event, WaitStatus};
use fencelock::{Client, Error, Guards, Lock, Mode, OnceStart, UnfinishedRun, WindowDone};
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

/// The settings of a claim of any kind, as those of a lock.
pub(super) fn settings(key: &str, request: ClaimRequest<'_>, client: &Client, progress: &Arc<Progress>) -> Lock {
    let mut lock = client.lock(key).ttl(request.ttl);
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
    lock
}

/// Waits for the locks.
pub(super) async fn claim(
    keys: &[String],
    request: ClaimRequest<'_>,
    client: &Client,
    progress: &Arc<Progress>,
) -> Result<Guards, Error> {
    let lock = settings(&keys[0], request, client, progress);
    let claimed = match (request.mode, keys) {
        (Mode::Permits { weight, limit, .. }, [key]) => {
            client.semaphore(key, limit).settings_of(&lock).acquire(weight).await.map(Guards::from)
        }
        (Mode::Shared, _) => client.lock_all(keys).settings_of(&lock).shared().acquire().await,
        _ => client.lock_all(keys).settings_of(&lock).acquire().await,
    };
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
    let mut work = once.window.work(key, client).settings_of(&settings(key, request, client, progress));
    if once.even_if_failed {
        work = work.even_if_failed();
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
