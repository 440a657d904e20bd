use super::claim::{Claimed, claim};
use super::run::check_all;
use crate::args::Acquire;
use crate::context::{CLOSING, Context, write_delivered};
use crate::exit::{Exit, Failure};
use crate::json::acquired;
use crate::keeper::{self, held_above};
use crate::plan::Plan;
use crate::progress::Progress;
use fencelock::{Client, Error, Guard};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Acquires a lock and leaves it held.
pub(super) async fn acquire(acquire: Acquire, context: &Context) -> Result<Exit, Failure> {
    if let Some(pid) = acquire.while_pid {
        return keeper::acquire(&acquire, pid, context).await;
    }
    let mut plan = Plan::of_acquire(&acquire).map_err(|why| Failure::new(Exit::Usage, why))?;
    context
        .with(context.connect_to_wait(), async |client| {
            if !client.capabilities().portable {
                let why =
                    "its locks end with the process that holds them, so `acquire` needs a process to hold one for";
                let instead = "--while-pid PID, in a shell --while-pid $$; or use `fencelock run KEY -- COMMAND`";
                return Err(Failure::new(Exit::Usage, format!("{}: {why}: {instead}", client.name())));
            }
            let backend = check_all(&mut plan, client, context).await?;
            let (guard, left) = tokio::select! {
                biased;
                taken = take(&plan, client, context) => taken?,
                refused = held_above(&plan, None, &backend, client) => return Err(refused),
            };
            let answer = if context.report.json {
                let hold = (guard.holder(), guard.fencing_token(), guard.mode());
                acquired(guard.key(), hold, plan.ttl, left).to_string()
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
        Ok(Err(error)) if !error.is_lost() => {
            format!("the lock could not be released and ends with its lease: {error:#}")
        }
        Ok(_) => "the lock was released".to_owned(),
        Err(_) => "the lock could not be released in time and ends with its lease".to_owned(),
    };
    Failure::new(failure.exit, format!("{}; {outcome}", failure.message))
}

/// Acquires the lock. Returns the remaining lease time.
async fn take(plan: &Plan, client: &Client, context: &Context) -> Result<(Guard, Duration), Error> {
    let progress = Arc::new(Progress::of_keys(&plan.keys, context.report));
    let Claimed::Held { guards, .. } = claim(plan, client, &progress).await? else {
        unreachable!("no window is asked for")
    };
    let guard = guards.into_guards().swap_remove(0);
    // A transferred lock has a short lease until its first renewal, and `acquire` does not renew it later.
    let left = client.renew(&plan.keys[0], guard.holder(), plan.ttl).await?;
    Ok((guard, left))
}
