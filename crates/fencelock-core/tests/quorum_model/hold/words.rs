//! Descriptions of steps.

use super::{Action, Stage, State};

const NAMES: [&str; 3] = ["A", "B", "C"];

pub(crate) fn describe(before: &State, action: Action, after: &State) -> String {
    let name = |who: u8| NAMES[usize::from(who)];
    let holds = |who: u8, node: u8| before.nodes[usize::from(node)].links[usize::from(who)].held > 0;
    let owners = |node: u8| {
        let names: Vec<_> = (0..3).filter(|&who| holds(who, node)).map(name).collect();
        names.join(" and ")
    };
    match action {
        Action::Begin(who) if before.attempts[usize::from(who)].claims_to_read => {
            format!("{} sends its claims to read", name(who))
        }
        Action::Begin(who) => format!("{} sends its claims", name(who)),
        Action::Run(who, node) if !holds(who, node) => {
            let over =
                if before.attempts[usize::from(who)].stage == Stage::Claiming { "" } else { ", too late for it" };
            format!("node {} grants {}{over}", node + 1, name(who))
        }
        Action::Run(who, node) => format!("node {} answers {} again", node + 1, name(who)),
        Action::Hold(who) => format!("{} has a majority of grants and holds", name(who)),
        Action::Leave(who) if before.attempts[usize::from(who)].stage == Stage::Claiming => {
            format!("{} gives up", name(who))
        }
        Action::Leave(who) => format!("{} releases", name(who)),
        Action::RunRelease(who, node) => {
            format!("node {} runs {}'s release, where {} had the lock", node + 1, name(who), owners(node))
        }
        Action::ClaimPasses(who) => format!("the TTL passes since {} sent its claims", name(who)),
        Action::RenewalPasses(who) => format!("the TTL passes since {} sent its renewal", name(who)),
        Action::Expire(who, node) => format!("{}'s lock on node {} expires", name(who), node + 1),
        Action::Forget(node, None) => format!("node {} forgets the lock of {} and stays out", node + 1, owners(node)),
        Action::Forget(node, Some((who, _))) => {
            format!("node {} falls back to when it was {}'s, and stays out", node + 1, name(who))
        }
        Action::Downgrade(who) => format!("{} only reads, and sends a downgrade", name(who)),
        Action::RunDowngrade(who, node) => format!("node {} shares {}'s lock", node + 1, name(who)),
        Action::Readmit(node) => format!("node {} takes part again", node + 1),
        Action::Renew(who) => format!("{} sends a renewal", name(who)),
        Action::RunRenewal(who, node) => format!("node {} renews {}'s lock", node + 1, name(who)),
        Action::Renewed(who) => {
            let lapsed = if after.attempts[usize::from(who)].late[0] { ", after its lease had lapsed" } else { "" };
            format!("{} has a majority of renewals and holds on{lapsed}", name(who))
        }
    }
}
