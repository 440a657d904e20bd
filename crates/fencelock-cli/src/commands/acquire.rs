use super::claim::{Wish, check, claim};
use crate::args::Acquire;
use crate::context::{Context, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::text::millis;
use fencelock::{Client, Error, Guard};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Takes a lock and leaves it held.
pub(super) async fn acquire(acquire: Acquire, context: &Context) -> Result<Exit, Failure> {
    context
        .with(context.connect_to_wait(), async |client| {
            if !client.capabilities().portable {
                return Err(not_portable(client));
            }
            check(&acquire.key, acquire.nested.nested_ok, client, context)?;
            let guard = take(&acquire, client, context).await?;
            let answer = if context.report.json { json(&guard, acquire.ttl) } else { guard.holder().to_string() };
            // A hold whose proof reached nobody would have to run out: it is given back instead, by dropping it.
            print(&format!("{answer}\n"))?;
            guard.into_holder();
            Ok(Exit::Success)
        })
        .await
}

async fn take(acquire: &Acquire, client: &Client, context: &Context) -> Result<Guard, Error> {
    let progress = Arc::new(Progress::new(&acquire.key, context.report));
    let label = acquire.label.as_deref();
    let wish = Wish { key: &acquire.key, ttl: acquire.ttl, label, wait: acquire.patience.limit() };
    let guard = claim(wish, client, &progress).await?;
    // A lock that was handed over has a short lease until its first renewal, and nobody will renew it from here on.
    client.renew(&acquire.key, guard.holder(), acquire.ttl).await?;
    Ok(guard)
}

fn json(guard: &Guard, ttl: Duration) -> String {
    json!({
        "key": guard.key().as_str(),
        "holder": guard.holder().to_string(),
        "fence": guard.fencing_token().get(),
        "ttl_ms": millis(ttl),
        "expires_in_ms": millis(guard.remaining()),
    })
    .to_string()
}

fn not_portable(client: &Client) -> Failure {
    let name = client.name();
    let why = "locks there end with the process that took them, so nothing would be held after `acquire`";
    Failure::new(Exit::Usage, format!("{name}: {why}; use `fencelock run KEY -- COMMAND`, or a redis:// URL"))
}
