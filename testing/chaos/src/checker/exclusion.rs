//! C3: no two holders in conflict, including foreign ones, assume at the same time that they hold a key, and the
//! permits in use do not exceed the limit of a semaphore.
//!
//! A holder assumes this from the return of its acquire until its known lease ends, it is notified of the loss, or it
//! starts to release, which it records first: a process that is then killed records nothing more. A writer that
//! downgrades counts as a reader from its request on.

use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};
use crate::history::HoldMode;

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    // The earlier holds that have not ended.
    let mut active: Vec<&Hold<'_>> = Vec::new();
    for hold in &view.holds {
        let start = hold.start();
        if hold.until <= start {
            continue;
        }
        active.retain(|before| before.until > start);
        found.extend(two_in_conflict(key, &active, hold).or_else(|| too_many_permits(key, &active, hold)));
        active.push(hold);
    }
}

/// The conflicting hold that ends last; the first of equal ones.
fn two_in_conflict(key: &str, active: &[&Hold<'_>], hold: &Hold<'_>) -> Option<Violation> {
    let conflicting = active.iter().rev().filter(|before| before.mode().conflicts(hold.mode()));
    let before = conflicting.max_by_key(|before| before.until)?;
    let both = before.until.min(hold.until) - hold.start();
    let (one, other) = (before.mode(), hold.mode());
    let modes = if one == other && one == HoldMode::Exclusive { String::new() } else { format!(" ({one}, {other})") };
    Some(Violation {
        check: Check::C3,
        key: key.to_owned(),
        lines: vec![before.number, before.ended_by, hold.number],
        // The reply of the holder that lost the key may have come last.
        span_us: (before.asked().min(hold.asked()), hold.start()),
        text: format!(
            "{} and {} both assumed for {both} us that they hold the key{modes}",
            before.acquire.client, hold.acquire.client
        ),
    })
}

/// Any two of them fit, but not all together.
fn too_many_permits(key: &str, active: &[&Hold<'_>], hold: &Hold<'_>) -> Option<Violation> {
    let HoldMode::Permits { limit, .. } = hold.mode() else { return None };
    let all = || active.iter().copied().chain([hold]);
    let used: u64 = all().map(|hold| weight(hold.mode())).sum();
    if used <= u64::from(limit) {
        return None;
    }
    // Any of them may be the one that exceeds the limit.
    let asked = active.iter().map(|before| before.asked()).min()?;
    Some(Violation {
        check: Check::C3,
        key: key.to_owned(),
        lines: all().map(|hold| hold.number).collect(),
        span_us: (asked, hold.start()),
        text: format!("{used} of {limit} permits were in use when {} got its own", hold.acquire.client),
    })
}

const fn weight(mode: HoldMode) -> u64 {
    if let HoldMode::Permits { weight, .. } = mode { weight as u64 } else { 0 }
}
