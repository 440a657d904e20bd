//! C12: work succeeds, or starts if starts count, at most once in each window, and is reported as done only if it may have.
//!
//! A window is known by its end, by the clock of the servers: every report of a success has it, with the token of the run.
//! In the order of the tokens, each success belongs to a later window. A success whose window was not reported is not checked.
//! The same is true for starts. A run that has ended without a start or an attempt to record its success must not be reported.

use super::view::{At, Hold, KeyView};
use super::violation::{Check, Violation};
use crate::history::Outcome;
use std::collections::{HashMap, HashSet};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    one_for_each_window(key, view, (&view.successes, "succeeded"), found);
    one_for_each_window(key, view, (&view.starts, "started"), found);
    reports_have_a_success(key, view, found);
}

fn one_for_each_window(key: &str, view: &KeyView<'_>, (lines, what): (&[At<'_>], &str), found: &mut Vec<Violation>) {
    let ends: HashMap<_, _> = view.reports.iter().map(|at| (at.line.fence, at.line.window_us)).collect();
    let recorded = lines.iter().filter(|at| at.line.result == Outcome::Ok);
    let mut counted: Vec<_> =
        recorded.filter_map(|at| Some((at.line.fence?, ends.get(&at.line.fence).copied()??, *at))).collect();
    counted.sort_by_key(|(fence, ..)| *fence);
    let mut latest: Option<(u64, At<'_>)> = None;
    for (fence, end, at) in counted {
        if let Some((until, before)) = latest.filter(|(until, _)| *until >= end) {
            let which = if until == end { "the same" } else { "an earlier" };
            found.push(Violation {
                check: Check::C12,
                key: key.to_owned(),
                lines: vec![before.number, at.number],
                span_us: (before.line.invoke_us, at.line.return_us),
                text: format!("the run with the token {fence} {what} in {which} window"),
            });
        } else {
            latest = Some((end, at));
        }
    }
}

fn reports_have_a_success(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let attempted: HashSet<_> = view.successes.iter().chain(&view.starts).map(|at| at.line.fence).collect();
    let holds: HashMap<_, _> = view.holds.iter().map(|hold| (hold.acquire.fence, hold)).collect();
    // A process that was killed may have succeeded without recording it here.
    let has_given_up = |hold: &&&Hold<'_>| hold.ended_by != hold.number && !attempted.contains(&hold.acquire.fence);
    let mut reported = HashSet::new();
    for at in &view.reports {
        if let Some(hold) = holds.get(&at.line.fence).filter(has_given_up)
            && reported.insert(hold.number)
        {
            found.push(Violation {
                check: Check::C12,
                key: key.to_owned(),
                lines: vec![hold.number, hold.ended_by, at.number],
                span_us: (hold.asked(), at.line.return_us),
                text: format!("{} gave its run up, and it was reported as done", hold.acquire.client),
            });
        }
    }
}
