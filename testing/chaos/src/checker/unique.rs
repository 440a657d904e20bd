//! C1: no two grants of a key have the same token, except readers, which need no order: two of a quorum, or two tasks of one client.

use super::view::KeyView;
use super::violation::{Check, Violation};
use crate::history::{HistoryLine, HoldMode};

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let mut grants: Vec<_> =
        view.holds.iter().filter_map(|hold| Some((hold.acquire.fence?, hold.number, hold.acquire))).collect();
    grants.sort_unstable_by_key(|(fence, number, _)| (*fence, *number));
    for pair in grants.windows(2) {
        let [(fence, first, one), (other, second, two)] = pair else { continue };
        // This includes equal holders: tasks that share a lease have a token each.
        if fence == other && !are_two_readers(one, two) {
            found.push(Violation {
                check: Check::C1,
                key: key.to_owned(),
                lines: vec![*first, *second],
                span_us: (one.invoke_us.min(two.invoke_us), one.return_us.max(two.return_us)),
                text: format!("two holds have the token {fence}"),
            });
        }
    }
}

fn are_two_readers(one: &HistoryLine, two: &HistoryLine) -> bool {
    [one, two].iter().all(|line| line.mode == HoldMode::Shared)
}
