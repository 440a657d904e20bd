use crate::args::Status;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{millis, state};
use crate::text::{holders, holding, plain, quarantine};
use fencelock::{Client, Error, Unknown};
use serde_json::Value;

/// Shows the holder of a key.
pub(super) async fn status(status: Status, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| show(client, &status.key, context).await).await
}

async fn show(client: &Client, key: &str, context: &Context) -> Result<Exit, Failure> {
    let held = match client.inspect(key).await {
        Err(Error::Unreachable { cause, .. }) if cause.is_quarantine() => return unknown(key, &cause, context),
        held => held?,
    };
    let answer = match &held {
        held if context.report.json => state(key, held.as_ref()).to_string(),
        None => format!("{}: free", plain(key)),
        Some(held) => format!("{}: {}{}", plain(key), holding(held), holders(held)),
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(if held.is_some() { Exit::Busy } else { Exit::Success })
}

/// A server that may have lost the lock cannot report it as free.
fn unknown(key: &str, cause: &Unknown, context: &Context) -> Result<Exit, Failure> {
    let why = quarantine(cause);
    let answer = if context.report.json {
        let rest = cause.nodes().iter().filter_map(|node| node.passes_in).max();
        let mut answer = state(key, None);
        (answer["held"], answer["waiters"]) = (Value::Null, Value::Null);
        (answer["unknown"], answer["quarantined_for_ms"]) = (why.into(), rest.map(millis).into());
        answer.to_string()
    } else {
        format!("{}: unknown ({why})", plain(key))
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(Exit::Unreachable)
}
