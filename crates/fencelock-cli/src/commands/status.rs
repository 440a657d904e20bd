use super::in_the_way::in_the_way;
use super::slots;
use crate::args::Status;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::{millis, state, window_done};
use crate::keeper::{self, Kept};
use crate::text::{holders, holding, plain, quarantine, waiters};
use fencelock::{Client, Error, Holding, Mode, TreePath, Unknown, WindowDone};
use serde_json::{Value, json};

/// Shows the holder of a key.
pub(super) async fn status(status: Status, context: &Context) -> Result<Exit, Failure> {
    let tree = status.tree.tree()?;
    let show = async |client: &Client| match &tree {
        Some(tree) => show_path(client, tree, context).await,
        None => show(client, &status, context).await,
    };
    context.with_client(show).await
}

/// What is known of a key.
pub(crate) struct Seen {
    held: Option<Holding>,
    done: Result<Option<WindowDone>, Error>,
    /// The processes of this machine that still run although the lock that was kept for them is lost.
    lost: Vec<Value>,
    slots: Result<Vec<Holding>, slots::Unlisted>,
}

/// Looks at a key. `identity` is that of the backend.
pub(crate) async fn see(client: &Client, key: &str, identity: &str) -> Result<Seen, Error> {
    let held = client.inspect(key).await?;
    let done = if client.stores_completions() { client.last_success(key).await } else { Ok(None) };
    let lost = lost_by(key, identity).await;
    let slots = if held.is_some() { Ok(Vec::new()) } else { slots::held(key, client, slots::LISTING).await };
    Ok(Seen { held, done, lost, slots })
}

impl Seen {
    fn is_held(&self) -> bool {
        self.held.is_some() || self.slots.as_ref().is_ok_and(|slots| !slots.is_empty())
    }

    pub(crate) fn json(self, key: &str, client: &Client) -> Value {
        let mut answer = state(key, self.held.as_ref(), client.capabilities().queues);
        if self.held.is_none() {
            answer["held"] = self.is_held().into();
        }
        answer["lost"] = self.lost.into();
        answer["slots"] =
            self.slots.ok().map(|slots| slots.iter().map(|slot| slot.key.as_str()).collect::<Value>()).into();
        answer["done"] = self.done.ok().flatten().as_ref().map(window_done).into();
        answer
    }
}

async fn show(client: &Client, status: &Status, context: &Context) -> Result<Exit, Failure> {
    let key = status.key.as_deref().unwrap_or_default();
    let seen = match see(client, key, &context.identity(client)?).await {
        Err(Error::Unreachable { cause, .. }) if cause.is_quarantine() => return unknown(key, &cause, context),
        seen => seen?,
    };
    let is_held = seen.is_held();
    let answer = if context.report.json {
        seen.json(key, client).to_string()
    } else {
        let Seen { held, done, lost, slots } = &seen;
        let holder = match (held, slots) {
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

/// Who is in the way of a lock on a path.
async fn show_path(client: &Client, tree: &TreePath, context: &Context) -> Result<Exit, Failure> {
    let found = in_the_way(tree, Mode::Exclusive, client).await?;
    let text = if found.is_empty() { "free".to_owned() } else { found.join("\n  ") };
    let (path, key, held) = (tree.as_str(), tree.key().as_str(), !found.is_empty());
    let json = json!({ "path": path, "key": key, "held": held, "in_the_way": found });
    context.answer_with(&json, &format!("{}: {text}", plain(path)))?;
    Ok(if held { Exit::Busy } else { Exit::Success })
}

async fn lost_by(key: &str, identity: &str) -> Vec<Value> {
    let mut holds = keeper::holds(identity).await;
    holds.retain(|kept| kept.lost.is_some() && kept.keys.iter().any(|held| held == key));
    let fields = |kept: Kept| {
        let name = Some(kept.owner).filter(|owner| !owner.is_empty());
        json!({ "pid": kept.pid, "command": kept.command, "label": kept.label, "name": name, "reason": kept.lost })
    };
    holds.into_iter().map(fields).collect()
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
    let text = format!("{}: unknown ({why})", plain(key));
    let rest = cause.nodes().iter().filter_map(|node| node.passes_in).max();
    let mut answer = state(key, None, false);
    (answer["held"], answer["queue"]) = (Value::Null, Value::Null);
    (answer["done"], answer["slots"], answer["lost"]) = (Value::Null, Value::Null, json!([]));
    (answer["unknown"], answer["quarantined_for_ms"]) = (why.into(), rest.map(millis).into());
    context.answer_with(&answer, &text)?;
    Ok(Exit::Unreachable)
}
