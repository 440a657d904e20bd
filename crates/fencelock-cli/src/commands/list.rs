use crate::args::List;
use crate::context::{Context, print};
use crate::exit::{Exit, Failure};
use crate::json::{is_unread, state, waiters};
use crate::mode;
use crate::text::{holder_of, plain, table};
use fencelock::{Client, Error, HolderInfo, Holding, Mode, Span};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::runtime::Handle;

/// Lists all held keys.
pub(super) async fn list(list: &List, client: &Client, context: &Context) -> Result<Exit, Failure> {
    let tree = list.tree.tree()?;
    let prefix = tree.as_ref().map(|tree| tree.key().to_string()).or(list.prefix.clone()).unwrap_or_default();
    let mut holdings = held(client, &prefix).await?;
    // The other keys of a path are shared.
    let is_path = |held: &Holding| held.first().mode != Mode::Shared && held.key.as_str().ends_with('/');
    holdings.retain(|held| tree.is_none() || is_path(held));
    let queues = client.capabilities().queues;
    let answer = if context.report.json {
        let states = holdings.iter().map(|held| state(held.key.as_str(), Some(held), queues));
        format!("{}\n", states.collect::<Value>())
    } else {
        in_columns(&holdings, queues)
    };
    print(&answer)?;
    Ok(if holdings.iter().any(is_unread) { Exit::Unreachable } else { Exit::Success })
}

/// What is held with this prefix, in the order of the keys.
pub(crate) async fn held(client: &Client, prefix: &str) -> Result<Vec<Holding>, Error> {
    let mut holdings = client.list().await?;
    holdings.retain(|held| held.key.as_str().starts_with(prefix));
    holdings.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(holdings)
}

/// A shell waits at most this long for the keys that it offers.
const PATIENCE: Duration = Duration::from_secs(1);
/// More keys would not help to choose one.
const MOST_OFFERED: usize = 200;

/// Writes the keys that begin with `prefix`, one in each line, for the completion of a shell. It runs beside the caller, because a
/// directory that does not answer blocks its thread.
pub(super) async fn complete(prefix: Option<String>, context: Context) -> Result<Exit, Failure> {
    let runtime = Handle::current();
    let work = move || {
        runtime.block_on(context.with_client(async |client| {
            print(&offered(&client.list().await?, prefix.as_deref().unwrap_or_default()))?;
            Ok(Exit::Success)
        }))
    };
    let done = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(work)).await;
    done.ok().and_then(Result::ok).unwrap_or(Ok(Exit::Success))
}

/// A key that looks like an option would become one, and a key that would be escaped on the screen would be another key.
fn offered(held: &[Holding], prefix: &str) -> String {
    let is_offered = |key: &&str| key.starts_with(prefix) && !key.starts_with('-') && plain(*key) == **key;
    let keys: BTreeSet<_> = held.iter().map(|held| held.key.as_str()).filter(is_offered).collect();
    keys.into_iter().take(MOST_OFFERED).flat_map(|key| [key, "\n"]).collect()
}

/// Empty if nothing is held, so that scripts can count lines.
fn in_columns(holdings: &[Holding], queues: bool) -> String {
    if holdings.is_empty() {
        return String::new();
    }
    let head = ["KEY", "HELD FOR", "ENDS IN", "WAITING", "WAITED", "TOKEN", "MODE", "HOLDER"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(holdings.iter().flat_map(|held| lines(held, queues))).collect();
    table(&rows)
}

/// One line for each holder.
fn lines(held: &Holding, queues: bool) -> impl Iterator<Item = [String; 8]> {
    let listed = u32::try_from(held.holders.iter().count()).unwrap_or(u32::MAX);
    let more = held.holders.count().saturating_sub(listed);
    let others = (more > 0).then(|| {
        let mut line: [String; 8] = Default::default();
        (line[0], line[7]) = (plain(&held.key), format!("and {more} more"));
        line
    });
    held.holders.iter().map(move |holder| columns(held, holder, queues)).chain(others)
}

fn columns(held: &Holding, holder: &HolderInfo, queues: bool) -> [String; 8] {
    let span = |span| Span(span).to_string();
    [
        plain(&held.key),
        holder.held_for.map_or_else(|| "?".to_owned(), span),
        holder.expiry.span().map_or_else(|| "-".to_owned(), span),
        waiters(held, queues).map_or_else(|| "-".to_owned(), |waiters| waiters.to_string()),
        held.longest_wait().map_or_else(|| "-".to_owned(), span),
        holder.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
        if is_unread(held) { "-".to_owned() } else { mode::column(holder.mode) },
        holder_of(holder),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::{Expiry, Key, Occupant};

    #[test]
    fn completion_offers_a_limited_number_of_keys_that_stay_the_same_on_a_command_line() {
        let held = |key: &str| {
            let holder = HolderInfo::new(Occupant::from_wire("x"), Expiry::Never);
            Holding::new(Key::new(key).unwrap(), holder)
        };
        let all: Vec<_> = ["b", "a b", "--yes", "a\u{202e}"].into_iter().map(held).collect();
        assert_eq!((offered(&all, ""), offered(&all, "b")), ("a b\nb\n".to_owned(), "b\n".to_owned()));
        let many: Vec<_> = (0..300).map(|n| held(&format!("k{n}"))).collect();
        assert_eq!((offered(&many, "").lines().count(), offered(&many, "k29").lines().count()), (200, 11));
    }
}
