//! Who is in the way of a lock on a path.

use super::list::held;
use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::text::{owner_of, plain, process_of};
use fencelock::{Client, Error, HolderInfo, Mode, Occupant, Span, TreePath};

/// Who is in the way of a lock in this mode: `held above by agent-2 (claude 4242, "rename the API", since 3 min) on src/db`, one for each
/// owner.
pub(super) async fn in_the_way(tree: &TreePath, mode: Mode, client: &Client) -> Result<Vec<String>, Error> {
    let mut found: Vec<[String; 2]> = Vec::new();
    for (key, mode) in tree.locks(mode) {
        let on = TreePath::of_key(key.as_str()).unwrap_or_default();
        let holding = client.inspect(&key).await?;
        let holds = holding.iter().flat_map(|held| held.holders.iter());
        for hold in holds.filter(|hold| !hold.mode.same_class(mode)) {
            let (name, who) = (hold.occupant.to_string(), described(hold));
            if found.iter().any(|[known, _]| *known == name) {
                continue;
            }
            let text = if on != tree.as_str() {
                let shared = if hold.mode == Mode::Exclusive { "" } else { ", shared" };
                format!("held above by {who} on {on}{shared}")
            } else if hold.mode == Mode::Exclusive {
                format!("held by {who}")
            } else {
                // The rest of what it holds is here or below.
                let held = held(client, tree.key().as_str()).await?;
                let is_its = |hold: &HolderInfo| hold.mode != Mode::Shared && hold.occupant.to_string() == name;
                let last = held.iter().rev().find(|held| held.holders.iter().any(is_its));
                match last.and_then(|held| TreePath::of_key(held.key.as_str())) {
                    Some(path) if path == on => format!("held by {who}, shared"),
                    path => format!("held below by {who} on {}", path.unwrap_or("a path")),
                }
            };
            found.push([name, plain(&text)]);
        }
    }
    Ok(found.into_iter().map(|[_, text]| text).collect())
}

/// Why a path is not to be had.
pub(super) async fn refused(plan: &Plan, failure: Failure, client: &Client) -> Failure {
    let Some(tree) = plan.tree.as_ref().filter(|_| failure.exit == Exit::Busy) else { return failure };
    let found = in_the_way(tree, plan.mode, client).await.unwrap_or_default().join("; ");
    if found.is_empty() {
        return failure;
    }
    Failure { message: format!("{}: {found}; use -w to wait longer", plain(tree.as_str())), ..failure }
}

/// `agent-2 (claude 4242, "rename the API", since 3 min)`
fn described(hold: &HolderInfo) -> String {
    let Occupant::Holder(holder) = &hold.occupant else { return hold.occupant.to_string() };
    let label = holder.owner.label().unwrap_or_default();
    let since = hold.held_for.map(|held| format!("since {}", Span(held)));
    let Some((_, of_process)) = label.split_once("while ").filter(|_| process_of(label).is_some()) else {
        return since.map_or_else(|| hold.occupant.to_string(), |since| format!("{}, {since},", hold.occupant));
    };
    let (process, why) = of_process.split_once(": ").unwrap_or((of_process, ""));
    let (pid, command) = process.split_once(' ').unwrap_or((process, ""));
    let process = format!("{command} {pid}");
    let why = Some(format!("{why:?}")).filter(|why| why != "\"\"");
    let name = owner_of(label).unwrap_or(&process);
    let about = [Some(&process).filter(|process| *process != name), why.as_ref(), since.as_ref()];
    format!("{name} ({})", about.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", "))
}
