use crate::args::Status;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{millis, state, window_done};
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
    let done = if client.capabilities().completions { client.last_success(key).await } else { Ok(None) };
    let answer = if context.report.json {
        let mut answer = state(key, held.as_ref(), client.capabilities().queues);
        answer["done"] = done.ok().flatten().as_ref().map(window_done).into();
        answer.to_string()
    } else {
        let holder = held.as_ref().map_or_else(|| "free".to_owned(), holding);
        let rows = held.as_ref().map(holders).unwrap_or_default();
        let done = match done {
            Ok(None) => String::new(),
            Ok(Some(done)) => format!("; {done}"),
            Err(error) => format!("; whether its work is done is unknown: {error:#}"),
        };
        format!("{}: {holder}{}{rows}", plain(key), plain(&done))
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(if held.is_some() { Exit::Busy } else { Exit::Success })
}

/// A server that may have lost the lock cannot report it as free.
fn unknown(key: &str, cause: &Unknown, context: &Context) -> Result<Exit, Failure> {
    let why = quarantine(cause);
    let answer = if context.report.json {
        let rest = cause.nodes().iter().filter_map(|node| node.passes_in).max();
        let mut answer = state(key, None, false);
        answer["held"] = Value::Null;
        answer["done"] = Value::Null;
        (answer["unknown"], answer["quarantined_for_ms"]) = (why.into(), rest.map(millis).into());
        answer.to_string()
    } else {
        format!("{}: unknown ({why})", plain(key))
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(Exit::Unreachable)
}
