//! C4: acquires end in the order of their tokens.
//!
//! It rests on the same clocks as C3. An acquire whose lease was over when it ended counts for nothing: its process
//! slept in between, and the holder was never told that it holds.

use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let living = view.holds.iter().filter(|hold| !hold.is_stillborn());
    let mut grants: Vec<_> = living.filter_map(|hold| Some((hold.acquire.fence?, hold))).collect();
    grants.sort_by_key(|(fence, _)| *fence);
    // Of the smaller tokens, the one that came last.
    let mut latest: Option<(u64, &Hold<'_>)> = None;
    for (fence, hold) in grants {
        if let Some((smaller, before)) =
            latest.filter(|(smaller, before)| *smaller < fence && before.start() > hold.start())
        {
            found.push(Violation {
                check: Check::C4,
                key: key.to_owned(),
                lines: vec![hold.number, before.number],
                span_us: (before.asked().min(hold.asked()), before.start()),
                text: format!("the token {smaller} arrived after {fence}"),
            });
        }
        if latest.is_none_or(|(_, before)| hold.start() > before.start()) {
            latest = Some((fence, hold));
        }
    }
}
