use super::claim::{Wish, check, claim};
use crate::args::Acquire;
use crate::context::{CLOSING, Context, deliver};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::millis;
use crate::progress::Progress;
use fencelock::{Client, Error, Guard};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Takes a lock and leaves it held.
pub(super) async fn acquire(acquire: Acquire, context: &Context) -> Result<Exit, Failure> {
    context
        .with(context.connect_to_wait(), async |client| {
            if !client.capabilities().portable {
                return Err(not_portable(client));
            }
            check(&acquire.key, acquire.nested.nested_ok, client, context)?;
            let (guard, left) = take(&acquire, client, context).await?;
            let answer = if context.report.json { json(&guard, &acquire, left) } else { guard.holder().to_string() };
            // A hold whose proof reached nobody would have to run out.
            if let Err(failure) = deliver(&format!("{answer}\n")) {
                return Err(give_back(guard, failure).await);
            }
            guard.into_holder();
            Ok(Exit::Success)
        })
        .await
}

async fn give_back(guard: Guard, failure: Failure) -> Failure {
    let released = timeout(CLOSING, guard.release()).await;
    let told = match released {
        Ok(Ok(_)) => "the lock was given back".to_owned(),
        Ok(Err(error)) => format!("the lock could not be given back and ends with its lease: {error:#}"),
        Err(_) => "the lock could not be given back in time and ends with its lease".to_owned(),
    };
    Failure::new(failure.exit, format!("{}; {told}", failure.message))
}

/// The lock, and how long it is held from now on.
async fn take(acquire: &Acquire, client: &Client, context: &Context) -> Result<(Guard, Duration), Error> {
    let progress = Arc::new(Progress::new(&acquire.key, context.report));
    let label = acquire.label.as_deref();
    let wish = Wish { key: &acquire.key, ttl: acquire.ttl, label, wait: acquire.patience.limit() };
    let guard = claim(wish, client, &progress).await?;
    // A lock that was handed over has a short lease until its first renewal, and nobody will renew it from here on.
    let left = client.renew(&acquire.key, guard.holder(), acquire.ttl).await?;
    Ok((guard, left))
}

fn json(guard: &Guard, acquire: &Acquire, left: Duration) -> String {
    json!({
        "key": guard.key().as_str(),
        "holder": guard.holder().to_string(),
        "fence": guard.fencing_token().get(),
        "ttl_ms": millis(acquire.ttl),
        "expires_in_ms": millis(left),
    })
    .to_string()
}

fn not_portable(client: &Client) -> Failure {
    let name = client.name();
    let why = "locks there end with the process that took them, so nothing would be held after `acquire`";
    Failure::new(Exit::Usage, format!("{name}: {why}; use `fencelock run KEY -- COMMAND`, or a redis:// URL"))
}
