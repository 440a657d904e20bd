use super::claim::{check, lasted};
use crate::args::Wait;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{millis, state};
use crate::progress::Progress;
use crate::text::{holding, plain, quarantine};
use crate::wait_status::WaitStatus;
use fencelock::contract::Occupied;
use fencelock::{Client, Error, Expiry, Fault, Holding, Span, Unknown};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A look costs one small request; a fifth of a second is soon enough for a person and slow enough for a server.
const PAUSE: Duration = Duration::from_millis(200);
/// A look that is under way when the wait ends is hardly waited for: a healthy server needs less.
const LAST_WORD: Duration = Duration::from_millis(50);

/// Waits until a key is free.
pub(super) async fn wait(wait: Wait, context: &Context) -> Result<Exit, Failure> {
    context
        .with(context.connect_to_wait(), async |client| {
            check(&wait.key, wait.nested.nested_ok, client, context)?;
            until_free(&wait, client, context).await
        })
        .await
}

/// For programs; people are told by the exit code, or why it took too long.
fn answer(wait: &Wait, held: Option<&Holding>, progress: &Progress, context: &Context) -> Result<Exit, Failure> {
    if context.report.json {
        let mut answer = state(&wait.key, held);
        answer["waited_ms"] = millis(progress.waited()).into();
        context.answer(&format!("{answer}\n"))?;
    }
    Ok(if held.is_some() { Exit::Busy } else { Exit::Success })
}

async fn until_free(wait: &Wait, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let progress = &Progress::new(&wait.key, context.report);
    let mut looks = 0;
    loop {
        let seen = look(wait, client, progress).await;
        let left = wait.limit.map(|limit| limit.saturating_sub(progress.waited()));
        let over = left == Some(Duration::ZERO);
        let pause = match seen {
            Ok(None) => {
                progress.done("is free");
                return answer(wait, None, progress, context);
            }
            Ok(Some(held)) if over && context.report.json => return answer(wait, Some(&held), progress, context),
            Ok(Some(held)) if over => {
                let waited = Some(progress.waited()).filter(|_| wait.limit != Some(Duration::ZERO));
                let waited = waited.map(|span| format!("; gave up after {}", Span(span))).unwrap_or_default();
                return Err(Failure::new(Exit::Busy, format!("{} is {}{waited}", plain(&wait.key), holding(&held))));
            }
            Ok(Some(held)) => {
                progress.waiting(&WaitStatus::of_watcher(&held, progress.waited()));
                pause(&held)
            }
            // What has not begun does not pass by itself.
            Err(Error::Unreachable { cause, .. }) if cause.is_quarantine() && (over || !passes(&cause)) => {
                let why = format!("{} is unknown ({})", plain(&wait.key), quarantine(&cause));
                return Err(Failure::new(Exit::Unreachable, why));
            }
            Err(Error::Unreachable { cause, .. }) if !over => {
                progress.trouble(&cause);
                PAUSE
            }
            Err(mut error) => {
                lasted(&mut error, progress.waited(), looks);
                return Err(error.into());
            }
        };
        looks += 1;
        sleep(pause.min(left.unwrap_or(PAUSE))).await;
    }
}

/// A server that does not answer is not waited for beyond the end of the wait. Whoever looks once leaves that to the place.
async fn look(wait: &Wait, client: &Client, progress: &Progress) -> Result<Option<Holding>, Error> {
    let looked = client.inspect(&wait.key);
    let Some(limit) = wait.limit.filter(|limit| !limit.is_zero()) else { return looked.await };
    let left = limit.saturating_sub(progress.waited()).max(LAST_WORD);
    timeout(left, looked).await.unwrap_or_else(|_| {
        let cause = Unknown::new(client.name(), Fault::Timeout, "the wait was over before an answer came");
        Err(Error::unreachable(cause))
    })
}

/// Whether every quarantine has begun, and so ends.
fn passes(cause: &Unknown) -> bool {
    cause.nodes().iter().all(|node| node.fault != Fault::Quarantined || node.passes_in.is_some())
}

/// A lease about to end is worth waiting for exactly.
fn pause(held: &Holding) -> Duration {
    match Occupied::from(held.clone()).expiry {
        Expiry::In(left) => PAUSE.min(left + Duration::from_millis(1)),
        Expiry::Never => PAUSE,
    }
}
