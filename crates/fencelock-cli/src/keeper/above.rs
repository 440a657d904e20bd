//! Locks that are kept for a process that a command runs under: to wait for them would be in vain.

use super::Kept;
use super::socket::{Peer, address, has_other_keeper, named, others_have_keepers, sessions};
use crate::exit::{Exit, Failure};
use crate::mode;
use crate::nesting::held_by_ancestor;
use crate::plan::Plan;
use crate::proc::{Ancestor, ancestors};
use crate::text::owner_of;
use fencelock::{Client, Mode, Occupant};
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks at the keepers, during a wait.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The owner of a request, its process, and the keeper that is asked for the locks.
pub(super) type Own<'a> = (&'a str, &'a Ancestor, Option<i32>);

/// Waits until it turns out that a lock of this command is kept for a process that it runs under, but for its own session. Cancel safe.
pub(crate) async fn held_above(awaited: &Plan, own: Option<Own<'_>>, backend: &str, client: &Client) -> Failure {
    if awaited.nested_ok {
        return pending().await;
    }
    let mut pause = BETWEEN_LOOKS;
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let ancestors = ancestors();
        let above: Vec<_> = ancestors.iter().chain(own.map(|(_, process, _)| process)).cloned().collect();
        let mut asked: Vec<_> = own.and_then(|(.., keeper)| keeper).into_iter().collect();
        let holds = ask_above(&above, own.map(|(_, process, _)| process), backend, &mut asked).await;
        let mut refused = in_vain(&holds, awaited, own.map_or("", |(owner, ..)| owner));
        // A request may cost money.
        if refused.is_none() && (others_have_keepers() || has_other_keeper(&above, &asked)) {
            refused = unasked(&above, &asked, awaited, client).await;
        }
        if refused.is_none() {
            refused = held_by_ancestor(&ancestors, awaited, client).await;
        }
        if let Some(why) = refused {
            return why;
        }
    }
}

/// What is kept for these processes, and the keepers that said so.
async fn ask_above(above: &[Ancestor], own: Option<&Ancestor>, backend: &str, asked: &mut Vec<i32>) -> Vec<Kept> {
    let mut holds = Vec::new();
    for session in sessions(backend) {
        if own.is_some_and(|own| own.fingerprint == session) || above.iter().all(|one| one.fingerprint != session) {
            continue;
        }
        let Ok(Some(mut keeper)) = Peer::connect(&address(backend, &session)).await else { continue };
        if let Some(kept) = keeper.holds().await {
            holds.extend(kept.into_iter().filter(|kept| kept.lost.is_none()));
            asked.extend(keeper.pid);
        }
    }
    holds
}

/// Another owner releases its locks when its turn ends, so a request that names its own owner waits for them.
fn in_vain(holds: &[Kept], awaited: &Plan, owner: &str) -> Option<Failure> {
    let may_matter = |kept: &&Kept| kept.owner.is_empty() || owner.is_empty() || kept.owner == owner;
    let holds: Vec<_> = holds.iter().filter(may_matter).collect();
    let (first, key) = conflict(&holds, awaited)?;
    let Kept { owner, pid, command, .. } = first;
    let (whose, until, instead) = if owner.is_empty() {
        (String::new(), String::new(), "if that lock is released")
    } else {
        (format!(", owner {owner}"), format!(" or {owner} releases it"), "to wait for that")
    };
    let why = format!(
        "{key} is held for process {pid} ({command}{whose}), which this program runs under, until that process ends{until}: \
         waiting would deadlock; use another key, or --nested-ok {instead}"
    );
    Some(Failure::new(Exit::Usage, why))
}

/// The first of these holds that is too much for a request, with the key: one of both is exclusive, or there are too few permits for all
/// of them. Of slots, all are held.
pub(super) fn conflict<'a>(holds: &[&'a Kept], awaited: &'a Plan) -> Option<(&'a Kept, String)> {
    if let Some(slots) = awaited.slots {
        let key = awaited.keys.first()?;
        let holder = |slot| holds.iter().find(|kept| kept.keys.contains(&format!("{key}#{slot}")));
        let holders: Option<Vec<_>> = (0..slots).map(holder).collect();
        return Some((holders?.first()?, key.clone()));
    }
    if let Some(locks) = awaited.of_path() {
        let is_free = |held: &str, by: Mode| locks.iter().all(|(key, mode)| *key != *held || mode.same_class(by));
        let kept = holds.iter().find(|kept| kept.locks().iter().any(|(key, mode)| !is_free(key, *mode)))?;
        return Some((kept, awaited.keys[0].clone()));
    }
    let (weight, limit) = mode::permits(awaited.mode);
    let mut wanted = u64::from(weight.unwrap_or_default());
    holds.iter().filter(|kept| kept.tree.is_none()).find_map(|kept| {
        let is_slot = |held: &str, key: &str| held.strip_prefix(key).is_some_and(|rest| rest.starts_with('#'));
        let of =
            |key: &&String| kept.keys.iter().any(|held| held == *key || awaited.awaits_slots && is_slot(held, key));
        let key = awaited.keys.iter().find(of)?;
        let (permits, _) = mode::permits(kept.mode);
        wanted = wanted.saturating_add(permits.unwrap_or_default().into());
        let exclusive = awaited.mode == Mode::Exclusive || kept.mode == Mode::Exclusive;
        let too_many = permits.is_some() && limit.is_some_and(|limit| wanted > limit.into());
        (exclusive || too_many).then(|| (*kept, key.clone()))
    })
}

/// What the record of a lock says of a keeper that could not be asked: it is of another user or in another network namespace, does not
/// answer, or has another URL for this backend. Without an answer of the backend nothing is refused.
async fn unasked(above: &[Ancestor], asked: &[i32], awaited: &Plan, client: &Client) -> Option<Failure> {
    let one = |key: String| async move {
        let found = client.inspect(&key).await.ok().flatten()?;
        found.holders.iter().find_map(|hold| {
            let Occupant::Holder(holder) = &hold.occupant else { return None };
            let (keeper, process) = named(&holder.owner).filter(|(keeper, _)| !asked.contains(keeper))?;
            above.iter().find(|one| one.pid == process)?;
            let owner = owner_of(holder.owner.label().unwrap_or_default()).unwrap_or_default().to_owned();
            let (pid, keys) = (process.cast_unsigned(), vec![key.clone()]);
            let kept = Kept { owner, pid, keys, mode: hold.mode, ..Kept::default() };
            Some((keeper, kept, holder.owner.to_string()))
        })
    };
    let keys: Vec<_> = match (awaited.slots, awaited.of_path()) {
        (Some(slots), _) => (0..slots).map(|slot| format!("{}#{slot}", awaited.keys[0])).collect(),
        (None, Some(locks)) => locks.into_iter().map(|(key, _)| key.to_string()).collect(),
        (None, None) => awaited.keys.clone(),
    };
    let mut found = Vec::new();
    for key in keys {
        let held = one(key).await;
        // One of several slots is enough.
        if held.is_none() && awaited.slots.is_some() {
            return None;
        }
        found.extend(held);
    }
    let holds: Vec<_> = found.iter().map(|(_, kept, _)| kept).collect();
    let (kept, key) = conflict(&holds, awaited)?;
    let (keeper, _, owner) = found.iter().find(|(_, one, _)| std::ptr::eq(one, kept))?;
    let why = format!(
        "{key} is held by {owner}, for a process that this program runs under ({}), and that keeper ({keeper}) cannot be asked: it is \
         stopped, of another user, in another network namespace, or has another URL for this backend, so waiting may never end; ask \
         where and as it was started, use another key, or --nested-ok to wait",
        kept.pid
    );
    Some(Failure::new(Exit::Unreachable, why))
}
