//! C2: an acquire that starts after a conflicting one has completed has the greater token.

use super::by_mode::ByMode;
use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let mut grants: Vec<_> = view.holds.iter().filter_map(|hold| Some((hold.acquire.fence?, hold))).collect();
    grants.sort_unstable_by_key(|(fence, _)| std::cmp::Reverse(*fence));
    // The earliest of the greater tokens.
    let mut earliest: ByMode<(u64, &Hold<'_>)> = ByMode::default();
    // C1 checks equal tokens, so all grants with one token are compared before any of them is added.
    for same in grants.chunk_by(|(one, _), (other, _)| one == other) {
        for (fence, hold) in same {
            let first = earliest.conflicting(hold.mode()).min_by_key(|(_, before)| before.acquire.return_us);
            if let Some((greater, before)) = first
                // A lease that is passed on got its token when it was granted.
                && hold.acquire.invoke_us.min(hold.asked()) > before.acquire.return_us
            {
                found.push(Violation {
                    check: Check::C2,
                    key: key.to_owned(),
                    lines: vec![before.number, hold.number],
                    span_us: (before.acquire.invoke_us, hold.acquire.return_us),
                    text: format!("the token {fence} was requested after {greater} was granted"),
                });
            }
        }
        for (fence, hold) in same {
            let is_earlier = |(_, first): &(u64, &Hold<'_>)| hold.acquire.return_us < first.acquire.return_us;
            earliest.keep(hold.mode(), (*fence, hold), is_earlier);
        }
    }
}
