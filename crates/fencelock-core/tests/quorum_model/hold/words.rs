//! Descriptions of steps.

use super::{Action, Stage, State};

const NAMES: [&str; 3] = ["A", "B", "C"];

pub(crate) fn describe(before: &State, action: Action, after: &State) -> String {
    let name = |who: u8| NAMES[usize::from(who)];
    let owner = |node: u8| match before.nodes[usize::from(node)].lock {
        0 => "no attempt",
        lock => name(lock - 1),
    };
    match action {
        Action::Begin(who) => format!("{} sends its claims", name(who)),
        Action::Run(who, node) if owner(node) == "no attempt" => {
            let over = if before.attempts[usize::from(who)].stage == Stage::Asking { "" } else { ", too late for it" };
            format!("node {} grants {}{over}", node + 1, name(who))
        }
        Action::Run(who, node) => format!("node {} answers {} again", node + 1, name(who)),
        Action::Hold(who) => format!("{} has a majority of grants and holds", name(who)),
        Action::Leave(who) if before.attempts[usize::from(who)].stage == Stage::Asking => {
            format!("{} gives up", name(who))
        }
        Action::Leave(who) => format!("{} releases", name(who)),
        Action::RunRelease(who, node) => {
            format!("node {} runs {}'s release and frees {}'s lock", node + 1, name(who), owner(node))
        }
        Action::ClaimPasses(who) => format!("the TTL passes since {} sent its claims", name(who)),
        Action::RenewalPasses(who) => format!("the TTL passes since {} sent its renewal", name(who)),
        Action::Expire(node) => format!("{}'s lock on node {} expires", owner(node), node + 1),
        Action::Forget(node, 0, _) => format!("node {} forgets {}'s lock and stays out", node + 1, owner(node)),
        Action::Forget(node, lock, _) => {
            format!("node {} falls back to when it was {}'s, and stays out", node + 1, name(lock - 1))
        }
        Action::Readmit(node) => format!("node {} takes part again", node + 1),
        Action::Renew(who) => format!("{} sends a renewal", name(who)),
        Action::RunRenewal(who, node) => format!("node {} renews {}'s lock", node + 1, name(who)),
        Action::Renewed(who) => {
            let lapsed = if after.attempts[usize::from(who)].late[0] { ", after its lease had lapsed" } else { "" };
            format!("{} has a majority of renewals and holds on{lapsed}", name(who))
        }
    }
}
