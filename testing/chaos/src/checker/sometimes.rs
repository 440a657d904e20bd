//! C9: the expected events have occurred. A run without them fails.
//!
//! A lock was granted, every expected event was observed, and every control was flagged.

use super::results::check_of;
use super::view::RunView;
use super::violation::{Check, Violation};
use std::collections::{BTreeSet, HashSet};

pub(super) fn check(run: &RunView<'_>, found: &mut Vec<Violation>) {
    let mut missing = Vec::new();
    if run.grants == 0 {
        missing.push((Vec::new(), String::new(), "no lock was granted".to_owned()));
    }
    let seen: HashSet<_> = run.seen.iter().filter_map(|at| at.line.what.as_deref()).collect();
    let mut reported = BTreeSet::new();
    for at in &run.expected {
        let what = at.line.what.as_deref().unwrap_or_default();
        if !seen.contains(what) && reported.insert(what) {
            missing.push((vec![at.number], at.line.key.clone(), format!("{what:?} did not happen")));
        }
    }
    for at in &run.controls {
        let Some(check) = check_of(at) else {
            missing.push((vec![at.number], at.line.key.clone(), "a control without a check".to_owned()));
            continue;
        };
        let is_it = |violation: &Violation| violation.check == check && violation.key == at.line.key;
        if !found.iter().any(is_it) {
            let text = format!("the control without protection was not flagged by {check}");
            missing.push((vec![at.number], at.line.key.clone(), text));
        }
    }
    found.extend(missing.into_iter().map(|(lines, key, text)| Violation {
        check: Check::C9,
        key,
        lines,
        span_us: (0, 0),
        text,
    }));
}
