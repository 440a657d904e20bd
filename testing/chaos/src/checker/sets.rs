//! C11: several keys are granted together, and the loss of one is the loss of all.
//!
//! - A grant of a set comes with a grant of each of its keys, in the same call.
//! - After the loss of one key was reported, the holder is not notified that it holds the set.
//! - The release of a key that was lost does not report success.
//!
//! The other keys stay held until they are released, so the other checks apply to each key of its own.

use super::view::{At, KeyView, RunView, View};
use super::violation::{Check, Violation};
use crate::history::Op;
use std::collections::BTreeMap;

/// A client, and when it requested the keys.
type Call<'a> = (&'a str, u64);
/// The granted keys, each with its view and the index of its hold.
type Set<'v, 'a> = Vec<(&'a str, &'v KeyView<'a>, usize)>;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    let mut sets: BTreeMap<Call<'_>, Set<'_, '_>> = BTreeMap::new();
    for (key, of_key) in &view.keys {
        for (index, hold) in of_key.holds.iter().enumerate() {
            if hold.acquire.op == Op::Acquire && !hold.acquire.keys.is_empty() {
                let call = (hold.acquire.client.as_str(), hold.acquire.invoke_us);
                sets.entry(call).or_default().push((key, of_key, index));
            }
        }
    }
    for set in sets.values() {
        granted_together(set, &view.run, found);
        lost_together(set, found);
    }
}

fn granted_together(set: &Set<'_, '_>, run: &RunView<'_>, found: &mut Vec<Violation>) {
    let Some((_, view, index)) = set.first() else { return };
    let first = &view.holds[*index];
    // The process may have been killed while it recorded the grants.
    if run.last_of.get(first.acquire.client.as_str()).is_none_or(|last| *last <= first.acquire.return_us) {
        return;
    }
    for wanted in &first.acquire.keys {
        if !set.iter().any(|(key, ..)| key == wanted) {
            found.push(Violation {
                check: Check::C11,
                key: wanted.clone(),
                lines: vec![first.number],
                span_us: (first.asked(), first.start()),
                text: format!("{} was granted the other keys of a set without this one", first.acquire.client),
            });
        }
    }
}

fn lost_together(set: &Set<'_, '_>, found: &mut Vec<Violation>) {
    let losses = set.iter().flat_map(|(key, view, index)| of_hold(&view.losses, *index).map(move |at| (*key, at)));
    let Some((key, lost)) = losses.min_by_key(|(_, at)| at.line.return_us) else { return };
    let notified = set.iter().flat_map(|(_, view, index)| of_hold(&view.held, *index));
    for at in notified.filter(|at| at.line.invoke_us >= lost.line.return_us) {
        let text = format!("{} was notified that it holds a set that had lost this key", at.line.client);
        found.push(violation(key, lost, at, text));
    }
    for (key, view, index) in set {
        let Some(lost) = of_hold(&view.losses, *index).next() else { continue };
        for at in of_hold(&view.releases, *index).filter(|at| at.line.invoke_us >= lost.line.return_us) {
            let text = format!("{} was notified that it released the key, which it had lost", at.line.client);
            found.push(violation(key, lost, at, text));
        }
    }
}

fn of_hold<'v, 'a>(lines: &'v [(At<'a>, usize)], index: usize) -> impl Iterator<Item = At<'a>> + use<'v, 'a> {
    lines.iter().filter(move |(_, hold)| *hold == index).map(|(at, _)| *at)
}

fn violation(key: &str, lost: At<'_>, at: At<'_>, text: String) -> Violation {
    Violation {
        check: Check::C11,
        key: key.to_owned(),
        lines: vec![lost.number, at.number],
        span_us: (lost.line.return_us, at.line.return_us),
        text,
    }
}
