//! C6: a holder that could renew was not superseded before.
//!
//! If a renewal succeeds, no grant with a greater token had completed when it was sent, and no foreign client had acquired
//! the key since the grant of the holder.

use super::view::{Hold, KeyView};
use super::violation::{Check, Violation};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let mut renewals = view.renewals.clone();
    renewals.sort_by_key(|(at, _)| at.line.invoke_us);
    let mut ended = view.holds.iter().peekable();
    let (mut greatest, mut foreign): (Option<&Hold<'_>>, Option<&Hold<'_>>) = (None, None);
    for (at, hold) in renewals {
        while let Some(grant) = ended.next_if(|grant| grant.start() < at.line.invoke_us) {
            match grant.acquire.fence {
                Some(_) if greatest.is_none_or(|it| it.acquire.fence < grant.acquire.fence) => greatest = Some(grant),
                None if foreign.is_none_or(|it| it.acquire.invoke_us < grant.acquire.invoke_us) => {
                    foreign = Some(grant);
                }
                _ => {}
            }
        }
        let mine = &view.holds[hold];
        let overtaken = greatest.filter(|it| mine.acquire.fence.is_some() && it.acquire.fence > mine.acquire.fence);
        let robbed = foreign.filter(|it| it.acquire.invoke_us > mine.start() && it.number != mine.number);
        for other in overtaken.into_iter().chain(robbed) {
            found.push(Violation {
                check: Check::C6,
                key: key.to_owned(),
                lines: vec![mine.number, other.number, at.number],
                span_us: (mine.acquire.invoke_us, at.line.return_us),
                text: format!("{} renewed after {} had acquired the key", mine.acquire.client, other.acquire.client),
            });
        }
    }
}
