//! C8: locks are granted again after the end of a fault, within the bound in the history. Grants of the foreign
//! client do not count, because it does not use the client library.

use super::view::{KeyView, RunView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, run: &RunView<'_>, found: &mut Vec<Violation>) {
    for heal in run.heals.iter().filter(|heal| heal.line.key.is_empty() || heal.line.key == key) {
        let from = heal.line.return_us;
        let until = from.saturating_add(heal.line.bound_us.unwrap_or(0));
        if run.stop.is_some_and(|stop| stop.line.return_us <= until) || is_new_or_old(view, from, until) {
            continue;
        }
        let next = view.holds.partition_point(|hold| hold.start() < from);
        let late = view.holds[next..].iter().find(|hold| hold.acquire.fence.is_some());
        if late.is_none_or(|hold| hold.start() > until) {
            let text = match late {
                Some(hold) => {
                    format!("the faults had ended, and the next grant came after {} ms", (hold.start() - from) / 1000)
                }
                None => "the faults had ended, and no lock was granted any more".to_owned(),
            };
            let lines = std::iter::once(heal.number).chain(late.map(|hold| hold.number)).collect();
            found.push(Violation { check: Check::C8, key: key.to_owned(), lines, span_us: (from, until), text });
        }
    }
}

/// A key without an earlier grant proves nothing, and neither does a key that only a control uses.
fn is_new_or_old(view: &KeyView<'_>, from: u64, until: u64) -> bool {
    let first = view.holds.first().map_or(u64::MAX, |hold| hold.acquire.invoke_us);
    first > from.min(until)
}
