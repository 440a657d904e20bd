//! Checks that no two holders of one key were in conflict, from what each process held at which time.
//!
//! All processes of a run are on one machine, so their clocks agree. A hold begins when its request has returned and ends
//! before its release is sent: if two of them overlap, both clients had the lock.

use crate::protocol::{HoldChange, LoadMode};
use serde::{Deserialize, Serialize};

/// The greatest number of changes in the log of one worker. Later changes are not checked.
pub const MAX_CHANGES: usize = 20_000;

/// The result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The number of changes that were checked.
    pub checked: u64,
    /// The number of changes after which holders were in conflict. It must be 0.
    pub conflicts: u64,
    /// The most permits or slots that were in use at once; `None` for other locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_permits: Option<u64>,
}

impl Audit {
    /// Checks the changes of all workers. Each list must be in the order of its times.
    pub(crate) fn of(mode: LoadMode, workers: &[&[HoldChange]]) -> Self {
        // The state of a worker is unknown after the end of a full list.
        let last = |changes: &&[HoldChange]| changes.last().map_or(u64::MAX, |change| change.0);
        let full = workers.iter().filter(|changes| changes.len() >= MAX_CHANGES);
        let horizon = full.map(last).min().unwrap_or(u64::MAX);
        let all = workers.iter().enumerate();
        let mut changes: Vec<(usize, HoldChange)> =
            all.flat_map(|(worker, changes)| changes.iter().map(move |change| (worker, *change))).collect();
        changes.retain(|(_, change)| change.0 <= horizon);
        changes.sort_by_key(|(_, change)| change.0);
        let mut now = vec![(0, 0); workers.len()];
        let (mut conflicts, mut most) = (0, 0);
        // The order of what different workers did within one microsecond is unknown.
        for together in changes.chunk_by(|(_, a), (_, b)| a.0 == b.0) {
            let mut is_found = false;
            for (worker, HoldChange(_, exclusive, others)) in together {
                now[*worker] = (u64::from(*exclusive), u64::from(*others));
                is_found |= is_conflict(mode, now[*worker]);
            }
            let sum = now.iter().fold((0, 0), |sum, (exclusive, others)| (sum.0 + exclusive, sum.1 + others));
            conflicts += u64::from(is_found || is_conflict(mode, sum));
            most = most.max(sum.1);
        }
        let most_permits = mode.limit().map(|_| most);
        Self { checked: changes.len() as u64, conflicts, most_permits }
    }
}

fn is_conflict(mode: LoadMode, (exclusive, others): (u64, u64)) -> bool {
    let too_many = mode.limit().is_some_and(|limit| others > u64::from(limit));
    exclusive > 1 || (exclusive > 0 && others > 0) || too_many
}

#[cfg(test)]
mod tests {
    use super::*;

    const READERS: LoadMode = LoadMode::Shared { writers_ppm: 1 };
    const PERMITS: LoadMode = LoadMode::Permits { limit: 3, weight: 1 };

    fn audit(mode: LoadMode, workers: &[&[(u64, u32, u32)]]) -> Audit {
        let changes = |list: &&[(u64, u32, u32)]| list.iter().map(|(at, x, s)| HoldChange(*at, *x, *s)).collect();
        let workers: Vec<Vec<HoldChange>> = workers.iter().map(changes).collect();
        Audit::of(mode, &workers.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn conflicts(mode: LoadMode, workers: &[&[(u64, u32, u32)]]) -> u64 {
        audit(mode, workers).conflicts
    }

    #[test]
    fn readers_overlap_each_other_and_no_writer() {
        assert_eq!(conflicts(READERS, &[&[(1, 0, 1), (5, 0, 0)], &[(2, 0, 1), (6, 0, 0), (7, 1, 0)]]), 0);
        assert_eq!(conflicts(READERS, &[&[(1, 0, 1), (5, 0, 0)], &[(4, 1, 0), (6, 0, 0)]]), 1);
        assert_eq!(conflicts(READERS, &[&[(1, 1, 0), (5, 0, 0)], &[(4, 1, 0), (6, 0, 0)]]), 1);
        assert_eq!(conflicts(READERS, &[&[(1, 1, 1)]]), 1);
    }

    #[test]
    fn a_hold_that_ends_when_another_begins_is_no_conflict() {
        assert_eq!(conflicts(READERS, &[&[(1, 1, 0), (5, 0, 0)], &[(5, 1, 0)]]), 0);
        assert_eq!(conflicts(READERS, &[&[(1, 1, 0), (5, 1, 1), (5, 0, 1)]]), 1);
    }

    #[test]
    fn permits_of_all_workers_are_counted_together() {
        assert_eq!(conflicts(PERMITS, &[&[(1, 0, 2), (4, 0, 1)], &[(2, 0, 1), (5, 0, 2)]]), 0);
        assert_eq!(conflicts(PERMITS, &[&[(1, 0, 2)], &[(2, 0, 1), (5, 0, 2)]]), 1);
        for (workers, most) in [
            (&[&[(1, 0, 2), (4, 0, 1)][..], &[(2, 0, 1), (5, 0, 0)]], 3),
            (&[&[(1, 0, 2), (3, 0, 0)], &[(3, 0, 1), (5, 0, 0)]], 2),
            (&[&[(1, 0, 2)], &[(2, 0, 3)]], 5),
        ] {
            assert_eq!(audit(PERMITS, workers).most_permits, Some(most), "{workers:?}");
        }
        assert_eq!(audit(READERS, &[&[(1, 0, 1)]]).most_permits, None);
    }

    #[test]
    fn nothing_is_checked_after_the_end_of_a_full_list() {
        let full: Vec<HoldChange> = (1..=MAX_CHANGES as u64).map(|at| HoldChange(at, 0, 1)).collect();
        let end = MAX_CHANGES as u64;
        let audit = |at| Audit::of(READERS, &[&full, &[HoldChange(at, 1, 0), HoldChange(at + 1, 0, 0)]]);
        assert_eq!(audit(end - 1).conflicts, 1);
        assert_eq!(audit(end + 1), Audit { checked: end, conflicts: 0, most_permits: None });
    }
}
