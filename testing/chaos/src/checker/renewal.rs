//! C6: a holder that could renew was not superseded before.
//!
//! If a renewal succeeds, no conflicting grant with a greater token had completed when it was sent, and no foreign client had
//! acquired the key since the grant of the holder.

use super::by_mode::ByMode;
use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let mut renewals = view.renewals.clone();
    renewals.sort_by_key(|(at, _)| at.line.invoke_us);
    let mut granted: Vec<&Hold<'_>> = view.holds.iter().collect();
    granted.sort_by_key(|hold| hold.acquire.return_us);
    let mut ended = granted.into_iter().peekable();
    let (mut greatest, mut foreign): (ByMode<&Hold<'_>>, Option<&Hold<'_>>) = (ByMode::default(), None);
    for (at, hold) in renewals {
        while let Some(grant) = ended.next_if(|grant| grant.acquire.return_us < at.line.invoke_us) {
            match grant.acquire.fence {
                Some(fence) => greatest.keep(grant.mode(), grant, |it| it.acquire.fence < Some(fence)),
                None if foreign.is_none_or(|it| it.acquire.invoke_us < grant.acquire.invoke_us) => {
                    foreign = Some(grant);
                }
                None => {}
            }
        }
        let mine = &view.holds[hold];
        let conflicting = greatest.conflicting(mine.mode()).max_by_key(|it| it.acquire.fence);
        let overtaken = conflicting.filter(|it| mine.acquire.fence.is_some() && it.acquire.fence > mine.acquire.fence);
        let robbed = foreign.filter(|it| it.acquire.invoke_us > mine.start() && it.number != mine.number);
        for other in overtaken.into_iter().chain(robbed) {
            found.push(Violation {
                check: Check::C6,
                key: key.to_owned(),
                lines: vec![mine.number, other.number, at.number],
                span_us: (mine.asked(), at.line.return_us),
                text: format!("{} renewed after {} had acquired the key", mine.acquire.client, other.acquire.client),
            });
        }
    }
}
