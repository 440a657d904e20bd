//! C3: no two holders believe at the same time that they hold; foreign ones included.
//!
//! A holder believes from the return of its acquire until its lease as it knows it ends, it is told of the loss, or it
//! begins to release, which it says first: a process that is killed meanwhile tells nothing more.

use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    // Of those that began before, the one that believes longest.
    let mut last: Option<&Hold<'_>> = None;
    for hold in &view.holds {
        if hold.until <= hold.start() {
            continue;
        }
        if let Some(before) = last.filter(|before| before.until > hold.start()) {
            let both = before.until.min(hold.until) - hold.start();
            found.push(Violation {
                check: Check::C3,
                key: key.to_owned(),
                lines: vec![before.number, before.ended_by, hold.number],
                span_us: (before.asked(), hold.start()),
                text: format!(
                    "{} and {} both believed for {both} us that they held",
                    before.acquire.client, hold.acquire.client
                ),
            });
        }
        if last.is_none_or(|before| hold.until > before.until) {
            last = Some(hold);
        }
    }
}
