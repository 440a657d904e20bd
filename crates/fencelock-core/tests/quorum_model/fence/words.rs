//! Descriptions of steps.

use super::{Action, Attempt, Fences, Flaw, Stage, State};

const NAMES: [&str; 3] = ["A", "B", "C"];

fn tokens(attempt: Attempt) -> String {
    match attempt.more {
        0 => attempt.token.to_string(),
        more => format!("{}..{}", attempt.token - more, attempt.token),
    }
}

pub(crate) fn describe<const N: usize>(
    model: &Fences<N>,
    before: &State<N>,
    action: Action<N>,
    after: &State<N>,
) -> String {
    let name = |who: u8| NAMES[usize::from(who)];
    let attempt = |who: u8| after.attempts[usize::from(who)];
    let fence = |node: u8| after.nodes[usize::from(node)].fence;
    match action {
        Action::Begin(who, proposal) if attempt(who).reads => {
            format!("{} sends its claims to read, proposing {proposal}", name(who))
        }
        Action::Begin(who, proposal) if model.scope.time.is_none() || model.has(Flaw::ClientClock) => {
            format!("{} sends its claims, proposing {proposal}", name(who))
        }
        Action::Begin(who, _) => format!("{} sends its claims", name(who)),
        Action::Run(who, node, ..) if before.link(who, node).held == 0 => {
            let again = if before.link(who, node).runs > 0 { ", running its claim again" } else { "" };
            let grants = after.link(who, node).grants;
            let more = grants.iter().find(|granted| granted.fence() == fence(node)).map_or(0, |granted| granted.more());
            let below = if more > 0 { format!(" and {more} below") } else { String::new() };
            format!("node {} grants {} fence {}{below}{again}", node + 1, name(who), fence(node))
        }
        Action::Run(who, node, ..) => {
            format!("node {} answers {} again: fence {}", node + 1, name(who), after.link(who, node).held)
        }
        Action::Decide(who, choice) => {
            let received: Vec<_> = choice
                .iter()
                .map(|granted| match granted.more() {
                    _ if !granted.is_some() => "-".into(),
                    0 => granted.fence().to_string(),
                    more => format!("{}..{}", granted.fence() - more, granted.fence()),
                })
                .collect();
            let then = if attempt(who).stage == Stage::Won { "wins with" } else { "raises to" };
            format!("{} has received {} and {then} {}", name(who), received.join(" "), tokens(attempt(who)))
        }
        Action::ReceiveLate(who, node) => format!("{} receives node {}'s grant late", name(who), node + 1),
        Action::RunRaise(who, node) => {
            format!("node {} acks {}'s raise to {}", node + 1, name(who), attempt(who).token)
        }
        Action::Finish(who) => format!("{} has a majority of acks and wins with {}", name(who), tokens(attempt(who))),
        Action::TtlPasses(who) => format!("{}'s TTL passes", name(who)),
        Action::GiveUp(who) => format!("{} gives up", name(who)),
        Action::Vanish(who, node) => format!("{}'s hold on node {} vanishes", name(who), node + 1),
        Action::Forget(node, fence) if model.scope.time.is_some_and(|time| time.quarantine > 0) => {
            let until = after.nodes[usize::from(node)].until;
            format!("node {} forgets, back to fence {fence}, and stays out until tick {until}", node + 1)
        }
        Action::Forget(node, fence) => format!("node {} forgets, back to fence {fence}", node + 1),
        Action::Tick => format!("tick {}", after.time),
    }
}
