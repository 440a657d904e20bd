use crate::args::List;
use crate::context::{Context, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::{is_unread, state};
use crate::mode;
use crate::text::{holder_of, plain, table};
use fencelock::{HolderInfo, Holding, Span};
use serde_json::Value;

/// Lists all held keys.
pub(super) async fn list(list: List, context: &Context) -> Result<Exit, Failure> {
    context
        .with_client(async |client| {
            let mut holdings = client.list().await?;
            holdings.retain(|held| held.key.as_str().starts_with(&list.prefix));
            holdings.sort_by(|a, b| a.key.cmp(&b.key));
            let queues = client.capabilities().queues;
            let answer = if context.report.json {
                let states = holdings.iter().map(|held| state(held.key.as_str(), Some(held), queues));
                format!("{}\n", states.collect::<Value>())
            } else {
                in_columns(&holdings, queues)
            };
            print(&answer)?;
            Ok(if holdings.iter().any(is_unread) { Exit::Unreachable } else { Exit::Success })
        })
        .await
}

/// Empty if nothing is held, so that scripts can count lines.
fn in_columns(holdings: &[Holding], queues: bool) -> String {
    if holdings.is_empty() {
        return String::new();
    }
    let head = ["KEY", "HELD FOR", "ENDS IN", "WAITING", "TOKEN", "MODE", "HOLDER"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(holdings.iter().flat_map(|held| lines(held, queues))).collect();
    table(&rows)
}

/// One line for each holder.
fn lines(held: &Holding, queues: bool) -> impl Iterator<Item = [String; 7]> {
    let listed = u32::try_from(held.holders.iter().count()).unwrap_or(u32::MAX);
    let more = held.holders.count().saturating_sub(listed);
    let others = (more > 0).then(|| {
        let mut line: [String; 7] = Default::default();
        (line[0], line[6]) = (plain(&held.key), format!("and {more} more"));
        line
    });
    held.holders.iter().map(move |holder| columns(held, holder, queues)).chain(others)
}

fn columns(held: &Holding, holder: &HolderInfo, queues: bool) -> [String; 7] {
    let span = |span| Span(span).to_string();
    [
        plain(&held.key),
        holder.held_for.map_or_else(|| "?".to_owned(), span),
        holder.expiry.span().map_or_else(|| "-".to_owned(), span),
        if queues { held.waiters.to_string() } else { "-".to_owned() },
        holder.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
        if is_unread(held) { "-".to_owned() } else { mode::column(holder.mode) },
        holder_of(holder),
    ]
}
