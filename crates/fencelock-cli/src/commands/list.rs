use crate::args::List;
use crate::context::{Context, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::state;
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
            let answer = if context.report.json {
                format!("{}\n", holdings.iter().map(|held| state(held.key.as_str(), Some(held))).collect::<Value>())
            } else {
                in_columns(&holdings)
            };
            print(&answer)?;
            Ok(Exit::Success)
        })
        .await
}

/// Empty if nothing is held, so that scripts can count lines.
fn in_columns(holdings: &[Holding]) -> String {
    if holdings.is_empty() {
        return String::new();
    }
    let head = ["KEY", "HELD FOR", "ENDS IN", "WAITING", "TOKEN", "MODE", "HOLDER"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(holdings.iter().flat_map(lines)).collect();
    table(&rows)
}

/// One line for each holder.
fn lines(held: &Holding) -> impl Iterator<Item = [String; 7]> {
    let listed = u32::try_from(held.holders.iter().count()).unwrap_or(u32::MAX);
    let more = held.holders.count().saturating_sub(listed);
    let others = (more > 0).then(|| {
        let mut line: [String; 7] = Default::default();
        (line[0], line[6]) = (plain(&held.key), format!("and {more} more"));
        line
    });
    held.holders.iter().map(|holder| columns(held, holder)).chain(others)
}

fn columns(held: &Holding, holder: &HolderInfo) -> [String; 7] {
    let span = |span| Span(span).to_string();
    [
        plain(&held.key),
        holder.held_for.map_or_else(|| "?".to_owned(), span),
        holder.expiry.span().map_or_else(|| "-".to_owned(), span),
        held.waiters.to_string(),
        holder.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
        mode::column(holder.mode),
        holder_of(holder),
    ]
}
