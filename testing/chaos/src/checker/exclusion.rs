//! C3: no two holders, including foreign ones, assume at the same time that they hold a key.
//!
//! A holder assumes so from the return of its acquire until its known lease ends, it is notified of the loss, or it
//! starts to release, which it records first: a process that is then killed records nothing more.

use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    // The earlier hold with the latest end.
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
                    "{} and {} both assumed for {both} us that they hold the key",
                    before.acquire.client, hold.acquire.client
                ),
            });
        }
        if last.is_none_or(|before| hold.until > before.until) {
            last = Some(hold);
        }
    }
}
