use super::slots;
use crate::args::Status;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::{millis, state, window_done};
use crate::keeper::{self, Kept};
use crate::text::{holders, holding, plain, quarantine, waiters};
use fencelock::{Client, Error, Unknown};
use serde_json::{Value, json};

/// Shows the holder of a key.
pub(super) async fn status(status: Status, context: &Context) -> Result<Exit, Failure> {
    context.with_client(async |client| show(client, &status, context).await).await
}

async fn show(client: &Client, status: &Status, context: &Context) -> Result<Exit, Failure> {
    let key = status.key.as_str();
    let held = match client.inspect(key).await {
        Err(Error::Unreachable { cause, .. }) if cause.is_quarantine() => return unknown(key, &cause, context),
        held => held?,
    };
    let done = if client.stores_completions() { client.last_success(key).await } else { Ok(None) };
    let lost = lost_by(client, key, context).await?;
    let slots = if held.is_some() { Ok(Vec::new()) } else { slots::held(key, client, slots::LISTING).await };
    let is_held = held.is_some() || slots.as_ref().is_ok_and(|slots| !slots.is_empty());
    let answer = if context.report.json {
        let mut answer = state(key, held.as_ref(), client.capabilities().queues);
        if held.is_none() {
            answer["held"] = is_held.into();
        }
        answer["lost"] = lost.into();
        answer["slots"] = slots.ok().map(|slots| slots.iter().map(|slot| slot.key.as_str()).collect::<Value>()).into();
        answer["done"] = done.ok().flatten().as_ref().map(window_done).into();
        answer.to_string()
    } else {
        let holder = match (&held, &slots) {
            (Some(held), _) => holding(held),
            (None, Ok(slots)) if is_held => slots::shown(slots),
            (None, Ok(_)) => "free".to_owned(),
            (None, Err(why)) => format!("free; {}", slots::unknown(why)),
        };
        let rows = held.as_ref().map(holders).unwrap_or_default();
        let queue = held.as_ref().filter(|_| status.waiters).map(waiters).unwrap_or_default();
        let done = match done {
            Ok(None) => String::new(),
            Ok(Some(done)) => format!("; {done}"),
            Err(error) => format!("; whether its work is done is unknown: {error:#}"),
        };
        let lost = lost.iter().map(|lost| format!("\n  {}", sentence(lost)));
        format!("{}: {holder}{}{rows}{queue}{}", plain(key), plain(&done), lost.collect::<String>())
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(if is_held { Exit::Busy } else { Exit::Success })
}

/// The processes of this machine that still run although the lock that was kept for them is lost.
async fn lost_by(client: &Client, key: &str, context: &Context) -> Result<Vec<Value>, Failure> {
    let mut holds = keeper::holds(&context.identity(client)?).await;
    holds.retain(|kept| kept.lost.is_some() && kept.keys.iter().any(|held| held == key));
    let fields = |kept: Kept| {
        let name = Some(kept.owner).filter(|owner| !owner.is_empty());
        json!({ "pid": kept.pid, "command": kept.command, "label": kept.label, "name": name, "reason": kept.lost })
    };
    Ok(holds.into_iter().map(fields).collect())
}

fn sentence(lost: &Value) -> String {
    let text = |name: &str| plain(lost[name].as_str().unwrap_or_default());
    let named =
        |name: &str, word: &str| lost[name].as_str().map(|_| format!(", {word}{}", text(name))).unwrap_or_default();
    let (owner, label) = (named("name", "owner "), named("label", ""));
    format!("process {} ({}{owner}{label}) lost it and still runs: {}", lost["pid"], text("command"), text("reason"))
}

/// A server that may have lost the lock cannot report it as free.
fn unknown(key: &str, cause: &Unknown, context: &Context) -> Result<Exit, Failure> {
    let why = quarantine(cause);
    let answer = if context.report.json {
        let rest = cause.nodes().iter().filter_map(|node| node.passes_in).max();
        let mut answer = state(key, None, false);
        (answer["held"], answer["queue"]) = (Value::Null, Value::Null);
        (answer["done"], answer["slots"], answer["lost"]) = (Value::Null, Value::Null, json!([]));
        (answer["unknown"], answer["quarantined_for_ms"]) = (why.into(), rest.map(millis).into());
        answer.to_string()
    } else {
        format!("{}: unknown ({why})", plain(key))
    };
    context.answer(&format!("{answer}\n"))?;
    Ok(Exit::Unreachable)
}
