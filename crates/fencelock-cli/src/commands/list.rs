use crate::args::List;
use crate::context::{Context, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::state;
use crate::text::{plain, table};
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
    let head = ["KEY", "HELD FOR", "ENDS IN", "WAITING", "TOKEN", "HOLDER"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(holdings.iter().flat_map(lines)).collect();
    table(&rows)
}

/// One line for each holder.
fn lines(held: &Holding) -> impl Iterator<Item = [String; 6]> {
    held.holders.iter().map(|holder| columns(held, holder))
}

fn columns(held: &Holding, holder: &HolderInfo) -> [String; 6] {
    let span = |span| Span(span).to_string();
    [
        plain(&held.key),
        holder.held_for.map_or_else(|| "?".to_owned(), span),
        holder.expiry.span().map_or_else(|| "-".to_owned(), span),
        held.waiters.to_string(),
        holder.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string()),
        plain(&holder.occupant),
    ]
}
