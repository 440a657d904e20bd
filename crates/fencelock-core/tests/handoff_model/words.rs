//! Steps told in words.

use crate::client::{Client, Phase};
use crate::model::{Action, Flaw, Model, Owner, State};

const NAMES: [&str; 3] = ["A", "B", "C"];

pub(crate) fn describe(model: &Model, before: &State, action: Action, after: &State) -> String {
    let name = |who: u8| NAMES[usize::from(who)];
    let then = |who: u8| after.clients[usize::from(who)];
    let request = |who: u8, number: u8| request_name(&before.clients[usize::from(who)], number);
    let until = |who: u8| validity(&then(who));
    let step = match action {
        Action::Enqueue(who) => format!("{} sends ENQ", name(who)),
        Action::Poll(who) | Action::Renew(who) => {
            format!("{} sends {}", name(who), request_name(&then(who), then(who).sent - 1))
        }
        Action::Run(who, number) => format!("the server runs {}'s {}", name(who), request(who, number)),
        Action::HearQueued(who, number, _) => {
            format!("{} hears that {} was answered QUEUED", name(who), request(who, number))
        }
        Action::HearOk(who, number, fence) => {
            format!("{} hears OK to {}, fence {fence}: {}", name(who), request(who, number), until(who))
        }
        Action::HearGrant(who, fence) if model.has(Flaw::CountsFromReceipt) => {
            format!("{} hears of its grant, fence {fence}: valid for the claim TTL from now", name(who))
        }
        Action::HearGrant(who, fence) => format!("{} hears of its grant, fence {fence}: {}", name(who), until(who)),
        Action::ClaimPasses(who) => {
            format!("the claim TTL passes since {} sent {}", name(who), request(who, then(who).claim_late - 1))
        }
        Action::TtlPasses(who) => {
            format!("the TTL passes since {} sent {}", name(who), request(who, then(who).late - 1))
        }
        Action::Leave(who) if before.clients[usize::from(who)].phase == Phase::Waiting => {
            format!("{} gives up", name(who))
        }
        Action::Leave(who) => format!("{} is done", name(who)),
        Action::RunRelease(who) => format!("the server runs {}'s RELEASE", name(who)),
        Action::Expire => "the key expires".into(),
        Action::Prune(who) => format!("the server takes {} out of the queue", name(who)),
        Action::SkipHead => "the server passes over the head of the queue".into(),
        Action::ForeignSet => "the plain client sets the key".into(),
        Action::ForeignHears => "the plain client hears OK and holds".into(),
        Action::ForeignTtlPasses => "the plain client's TTL passes".into(),
        Action::ForeignLeaves => "the plain client is done".into(),
        Action::ForeignDelete => "the plain client's delete runs".into(),
    };
    step + &effect(before, action, after)
}

fn request_name(client: &Client, number: u8) -> String {
    match number {
        0 => "ENQ".into(),
        _ if client.is_renewal(number) => format!("RENEW {number}"),
        _ => format!("POLL {number}"),
    }
}

fn validity(client: &Client) -> String {
    let length = if client.early { "the claim TTL" } else { "the TTL" };
    format!("valid for {length} from when it sent {}", request_name(client, client.basis))
}

/// What became of the lock and the queue.
fn effect(before: &State, action: Action, after: &State) -> String {
    let owner = |state: &State| match state.lock.owner {
        Owner::Nobody => "free".into(),
        Owner::Own(who) if state.lock.claim_after > 0 && state.lock.ttl_after == 0 => {
            format!("{}'s for the claim TTL", NAMES[usize::from(who)])
        }
        Owner::Own(who) => format!("{}'s", NAMES[usize::from(who)]),
        Owner::Foreign => String::from("the plain client's"),
    };
    let queue = |state: &State| state.queue.iter().map(|who| NAMES[usize::from(who)]).collect::<Vec<_>>().join(" ");
    let passed_on = before.lock.owner != after.lock.owner || before.fence != after.fence;
    let raised = matches!(action, Action::Run(..)) && owner(before) != owner(after);
    let lock = if passed_on || raised { format!(" -> the lock is {}", owner(after)) } else { String::new() };
    if before.queue == after.queue { lock } else { format!("{lock} -> the queue is [{}]", queue(after)) }
}
