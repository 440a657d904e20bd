//! C4: conflicting acquires complete in the order of their tokens.
//!
//! It depends on the same clocks as C3. An acquire whose lease had expired before it completed does not count: its process
//! was paused, and the client never reported that it holds the lock.

use super::by_mode::ByMode;
use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let living = view.holds.iter().filter(|hold| !hold.is_expired_at_start());
    let mut grants: Vec<_> = living.filter_map(|hold| Some((hold.acquire.fence?, hold))).collect();
    grants.sort_by_key(|(fence, _)| *fence);
    // The latest of the smaller tokens.
    let mut latest: ByMode<(u64, &Hold<'_>)> = ByMode::default();
    for (fence, hold) in grants {
        let conflicting = latest.conflicting(hold.mode()).max_by_key(|(_, before)| before.start());
        if let Some((smaller, before)) =
            conflicting.filter(|(smaller, before)| *smaller < fence && before.start() > hold.start())
        {
            found.push(Violation {
                check: Check::C4,
                key: key.to_owned(),
                lines: vec![hold.number, before.number],
                span_us: (before.asked().min(hold.asked()), before.start()),
                text: format!("the token {smaller} arrived after {fence}"),
            });
        }
        latest.keep(hold.mode(), (fence, hold), |(_, before)| hold.start() > before.start());
    }
}
