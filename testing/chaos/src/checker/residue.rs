//! C7: no lock is left after all clients have stopped.
//!
//! One second and the longest TTL after the last client has stopped, no key is held, and no TTL has increased since,
//! as it would with a watchdog that still runs. The final state must be recorded.

use super::view::{At, KeyView, RunView};
use super::violation::{Check, Violation};
use std::collections::HashMap;

const GRACE_US: u64 = 1_000_000;
/// Two readings of one TTL differ by the duration of the request.
const TOLERANCE_US: u64 = 50_000;

pub(super) fn check(key: &str, view: &KeyView<'_>, run: &RunView<'_>, found: &mut Vec<Violation>) {
    let Some(stop) = run.stop else { return };
    let over = stop.line.return_us + GRACE_US + run.longest_ttl;
    let mut report = |lines: Vec<usize>, until: u64, text: String| {
        let span_us = (stop.line.return_us, until);
        found.push(Violation { check: Check::C7, key: key.to_owned(), lines, span_us, text });
    };
    let mut first: HashMap<&str, At<'_>> = HashMap::new();
    let mut inspected = false;
    for at in view.inspections.iter().filter(|at| at.line.invoke_us >= stop.line.return_us) {
        inspected |= at.line.invoke_us >= over;
        let Some(holder) = at.line.holder.as_deref() else { continue };
        if at.line.invoke_us >= over {
            report(vec![stop.number, at.number], at.line.return_us, format!("{holder} still holds the key"));
        }
        let before = first.entry(holder).or_insert(*at);
        if end(at) > end(before).saturating_add(TOLERANCE_US) {
            report(vec![before.number, at.number], at.line.return_us, format!("the lock of {holder} is still renewed"));
        }
    }
    if !inspected && !view.holds.is_empty() {
        report(vec![stop.number], over, "the final state of the key was not recorded".to_owned());
    }
}

fn end(at: &At<'_>) -> u64 {
    at.line.valid_until_us.unwrap_or(u64::MAX)
}
