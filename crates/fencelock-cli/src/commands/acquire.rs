use super::claim::{ClaimRequest, check, claim};
use crate::args::Acquire;
use crate::context::{CLOSING, Context, write_delivered};
use crate::exit::{Exit, Failure};
use crate::json::acquired;
use crate::keeper::{self, Awaited, held_above};
use crate::progress::Progress;
use fencelock::{Client, Error, Guard, Mode};
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Acquires a lock and leaves it held.
pub(super) async fn acquire(acquire: Acquire, context: &Context) -> Result<Exit, Failure> {
    if let Some(pid) = acquire.while_pid {
        return keeper::acquire(&acquire, pid, context).await;
    }
    let mode = acquire.mode.mode(1).map_err(|why| Failure::new(Exit::Usage, why))?;
    context
        .with(context.connect_to_wait(), async |client| {
            if !client.capabilities().portable {
                return Err(not_portable(client));
            }
            let backend = check(&acquire.key, acquire.nested.nested_ok, client, context).await?;
            let (keys, nested_ok) = (slice::from_ref(&acquire.key), acquire.nested.nested_ok);
            let awaited = Awaited { keys, mode, slots: None, with_slots: false, nested_ok };
            let (guard, left) = tokio::select! {
                biased;
                taken = take(&acquire, mode, client, context) => taken?,
                refused = held_above(awaited, &backend, client) => return Err(refused),
            };
            let answer = if context.report.json {
                let hold = (guard.holder(), guard.fencing_token(), guard.mode());
                acquired(guard.key(), hold, acquire.ttl, left).to_string()
            } else {
                guard.holder().to_string()
            };
            // A lock whose holder ID was not delivered could only expire.
            if let Err(failure) = write_delivered(&format!("{answer}\n")) {
                return Err(release_undelivered(guard, failure).await);
            }
            guard.into_holder();
            Ok(Exit::Success)
        })
        .await
}

async fn release_undelivered(guard: Guard, failure: Failure) -> Failure {
    let released = timeout(CLOSING, guard.release()).await;
    let outcome = match released {
        Ok(Ok(_)) => "the lock was released".to_owned(),
        Ok(Err(error)) => format!("the lock could not be released and ends with its lease: {error:#}"),
        Err(_) => "the lock could not be released in time and ends with its lease".to_owned(),
    };
    Failure::new(failure.exit, format!("{}; {outcome}", failure.message))
}

/// Acquires the lock. Returns the remaining lease time.
async fn take(acquire: &Acquire, mode: Mode, client: &Client, context: &Context) -> Result<(Guard, Duration), Error> {
    let progress = Arc::new(Progress::new(&acquire.key, context.report));
    let label = acquire.label.as_deref();
    let request = ClaimRequest { mode, ttl: acquire.ttl, label, wait: acquire.patience.limit() };
    let guards = claim(slice::from_ref(&acquire.key), request, client, &progress).await?;
    let guard = guards.into_guards().swap_remove(0);
    // A transferred lock has a short lease until its first renewal, and `acquire` does not renew it later.
    let left = client.renew(&acquire.key, guard.holder(), acquire.ttl).await?;
    Ok((guard, left))
}

fn not_portable(client: &Client) -> Failure {
    let name = client.name();
    let why = "its locks end with the process that holds them, so `acquire` needs a process to hold one for";
    let instead = "--while-pid PID, in a shell --while-pid $$; or use `fencelock run KEY -- COMMAND`";
    Failure::new(Exit::Usage, format!("{name}: {why}: {instead}"))
}
