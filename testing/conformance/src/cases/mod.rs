//! The cases, one file for each part of the contract.

mod blocks;
mod claims;
mod completions;
mod crowd;
mod downgrade;
mod dropping;
mod events;
mod exclusion;
mod expiry;
mod fencing;
mod foreign;
mod inspection;
mod mode_conflicts;
mod names;
mod permits;
mod queue;
mod raising;
mod release;
mod renewal;
mod resizing;
mod row;
mod shared;

use crate::case::Case;

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    let parts = [
        exclusion::cases(),
        claims::cases(),
        completions::cases(),
        shared::cases(),
        permits::cases(),
        row::cases(),
        mode_conflicts::cases(),
        resizing::cases(),
        downgrade::cases(),
        crowd::cases(),
        release::cases(),
        expiry::cases(),
        renewal::cases(),
        fencing::cases(),
        blocks::cases(),
        raising::cases(),
        queue::cases(),
        events::cases(),
        inspection::cases(),
        names::cases(),
        dropping::cases(),
        foreign::cases(),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_has_a_unique_name_that_states_a_fact() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(case.name.matches('_').count() >= 2 && !case.name.contains(['{', '<', ':']), "{}", case.name);
            assert!(names.insert(case.name), "twice: {}", case.name);
        }
        assert!(!names.is_empty());
    }
}
