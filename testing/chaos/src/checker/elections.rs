//! C13: observers of an election are notified of its terms in order, each with its value, and of a leader that stays.
//!
//! - An observer is not notified of a smaller term after a greater one.
//! - A term has the value that its leader published.
//! - A leader that leads without faults is the last one that every observer was notified of.
//!
//! A leader is the holder of a lock, so the other checks apply to leaders too.

use super::view::{At, KeyView};
use super::violation::{Check, Violation};
use crate::history::Outcome;
use std::collections::BTreeMap;

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let mut by_observer: BTreeMap<&str, Vec<At<'_>>> = BTreeMap::new();
    for at in &view.observed {
        by_observer.entry(&at.line.client).or_default().push(*at);
    }
    for reports in by_observer.values_mut() {
        reports.sort_by_key(|at| at.line.return_us);
        terms_never_decrease(key, reports, found);
        for leader in &view.led {
            leader_is_noticed(key, reports, leader, found);
        }
    }
    terms_have_one_value(key, view, found);
}

fn violation(key: &str, before: At<'_>, at: At<'_>, text: String) -> Violation {
    Violation {
        check: Check::C13,
        key: key.to_owned(),
        lines: vec![before.number, at.number],
        span_us: (before.line.invoke_us.min(at.line.invoke_us), before.line.return_us.max(at.line.return_us)),
        text,
    }
}

fn terms_never_decrease(key: &str, reports: &[At<'_>], found: &mut Vec<Violation>) {
    let mut greatest: Option<(u64, At<'_>)> = None;
    for at in reports {
        let Some(term) = at.line.fence else { continue };
        match greatest {
            Some((greater, before)) if greater > term => {
                let text = format!("{} was notified of the term {term} after {greater}", at.line.client);
                found.push(violation(key, before, *at, text));
            }
            _ => greatest = Some((term, *at)),
        }
    }
}

/// The value of each term is that of the grant, or of the first report if its leader did not learn of it: a process that is
/// paused before it receives its grant may win another term in the same campaign, so a value can have several terms.
fn terms_have_one_value(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let grants = view.holds.iter().map(|hold| At { number: hold.number, line: hold.acquire });
    let reports = view.observed.iter().filter(|at| at.line.result == Outcome::Ok);
    let mut known: BTreeMap<u64, At<'_>> = BTreeMap::new();
    for at in grants.chain(reports.copied()) {
        let Some(term) = at.line.fence else { continue };
        let first = *known.entry(term).or_insert(at);
        if first.line.value != at.line.value {
            let [value, other] = [at, first].map(|at| at.line.value.clone().unwrap_or_else(|| "no value".to_owned()));
            found.push(violation(
                key,
                first,
                at,
                format!("the term {term} was reported with {value}, and has {other}"),
            ));
        }
    }
}

/// An observer that began later or ended before is not checked.
fn leader_is_noticed(key: &str, reports: &[At<'_>], leader: &At<'_>, found: &mut Vec<Violation>) {
    let (Some(first), Some(last)) = (reports.first(), reports.last()) else { return };
    if first.line.invoke_us > leader.line.invoke_us || last.line.return_us < leader.line.return_us {
        return;
    }
    let is_in_time = |at: &&At<'_>| at.line.return_us <= leader.line.return_us && at.line.result != Outcome::Info;
    let notified = reports.iter().rfind(is_in_time);
    let is_it = |at: &At<'_>| at.line.result == Outcome::Ok && at.line.value == leader.line.value;
    if notified.is_none_or(|at| !is_it(at)) {
        let span = (leader.line.return_us - leader.line.invoke_us) / 1000;
        let text = format!("{} was not notified of the leader within {span} ms", first.line.client);
        found.push(violation(key, *leader, *notified.unwrap_or(first), text));
    }
}
