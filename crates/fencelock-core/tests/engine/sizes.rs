//! The two sizes of a scenario: every state of the small one is searched, and random schedules of the large one run.

use crate::explore::{self, SearchSummary};
use crate::scenario::{Budget, Scenario};

/// Random schedules of each scenario: as many as its subject needs to occur, and some more. `scripts/search` runs 100,000.
const USUAL: usize = 10_000;
/// States of a small version that are searched at most. `scripts/search` searches 60,000.
const MOST: usize = 30_000;

/// More time, more haste, and packets that get lost.
pub(crate) fn large(small: &Scenario) -> Scenario {
    let Budget { time, lost, haste, .. } = small.budget;
    let budget = Budget { time: time + 2, lost: lost + 2, haste: haste + 2, ..small.budget };
    Scenario { budget, ..*small }
}

/// Every state of the small version, and random schedules of the large one.
pub(crate) fn explore(small: &Scenario) {
    explore_with(small, USUAL);
}

/// With so many random schedules, because the subject of the scenario is rare.
pub(crate) fn explore_with(small: &Scenario, schedules: usize) {
    if let Some(replayed) = explore::replay(small) {
        replayed.unwrap_or_else(|failure| panic!("{}", explore::explain(small, &failure)));
    }
    if let Some(replayed) = explore::replay(&named(&large(small))) {
        replayed.unwrap_or_else(|failure| panic!("{}", explore::explain(&named(&large(small)), &failure)));
    }
    if explore::replays() {
        return;
    }
    let fail = |scenario: &Scenario, failure| -> SearchSummary { panic!("{}", explore::explain(scenario, &failure)) };
    let every = explore::search(small, None, explore::states(MOST)).unwrap_or_else(|failure| fail(small, failure));
    let large = named(&large(small));
    let many = explore::random(&large, None, explore::schedules(schedules));
    let many = many.unwrap_or_else(|failure| fail(&large, failure));
    println!(
        "{}: {} states{}, {} acts deep; {} random schedules, up to {} choices",
        small.name,
        every.count,
        if every.complete { " (all)" } else { "" },
        every.longest,
        many.count,
        many.longest
    );
    for what in small.covers {
        let covered = every.covered.contains(*what) || many.covered.contains(*what);
        assert!(covered, "{} never came across {what:?}", small.name);
    }
}

/// The large version has a name of its own.
fn named(large: &Scenario) -> Scenario {
    Scenario { name: Box::leak(format!("{}-large", large.name).into_boxed_str()), ..*large }
}
