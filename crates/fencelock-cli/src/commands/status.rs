use crate::args::Status;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::{holding, millis, plain, quarantine};
use fencelock::{Client, Error, Holding, Unknown};
use serde_json::{Value, json};

/// Tells who has a key.
pub(super) async fn status(status: Status, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| look(client, &status.key, context).await).await
}

async fn look(client: &Client, key: &str, context: &Context) -> Result<Exit, Failure> {
    let held = match client.inspect(key).await {
        Err(Error::Unreachable { cause, .. }) if cause.is_quarantine() => return unknown(key, &cause, context),
        held => held?,
    };
    let answer = match &held {
        None if context.report.json => json!({ "key": key, "held": false }).to_string(),
        Some(held) if context.report.json => describe(held).to_string(),
        None => format!("{}: free", plain(key)),
        Some(held) => format!("{}: {}", plain(key), holding(held)),
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(if held.is_some() { Exit::Busy } else { Exit::Success })
}

/// A server that may have forgotten the lock does not call it free.
fn unknown(key: &str, cause: &Unknown, context: &Context) -> Result<Exit, Failure> {
    let why = quarantine(cause);
    let answer = if context.report.json {
        let rest = cause.nodes().iter().filter_map(|node| node.passes_in).max();
        json!({ "key": key, "held": null, "unknown": why, "quarantined_for_ms": rest.map(millis) }).to_string()
    } else {
        format!("{}: unknown ({why})", plain(key))
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(Exit::Unreachable)
}

/// A hold as JSON.
pub(super) fn describe(held: &Holding) -> Value {
    json!({
        "key": held.key.as_str(),
        "held": true,
        "by": held.occupant.to_string(),
        "ours": held.occupant.holder_id().is_some(),
        "fence": held.fence.map(fencelock::FencingToken::get),
        "held_for_ms": held.held_for.map(millis),
        "expires_in_ms": held.expiry.span().map(millis),
        "waiters": held.waiters,
    })
}
