//! Searches that count states as one find what searches of all states find. That they find it as near, the numbers of acts of `mutants.rs`
//! show.

use crate::explore::{Order, SearchSummary, search_with};
use crate::scenario::{Budget, NO_BUDGET, Scenario};
use crate::visited::Reduction;
use crate::{hand_off, modes, permits, scenarios};

/// Above what any search here needs.
const LIMIT: usize = 300_000;

fn whole(scenario: &Scenario, order: Order, reduction: Reduction) -> SearchSummary {
    let found = search_with(scenario, None, LIMIT, (order, reduction)).expect("no promise is broken");
    assert!(found.complete, "the search of {} was cut short", scenario.name);
    found
}

#[test]
fn a_reduced_search_reaches_the_events_of_a_search_of_all_states() {
    let readers = Scenario { budget: NO_BUDGET, ..modes::READERS };
    let downgrade = Scenario { budget: Budget { lost: 1, ..NO_BUDGET }, ..modes::DOWNGRADE };
    let permits_and_writer = Scenario { budget: NO_BUDGET, ..modes::PERMITS_AND_WRITER };
    let beside_another = Scenario { budget: NO_BUDGET, ..permits::BESIDE_ANOTHER };
    let scenarios = [
        &scenarios::ACQUIRE_DROP,
        &scenarios::RENEW_RELEASE,
        &scenarios::CANCEL_HAND_OFF,
        &scenarios::STALE_HAND_OFF,
        &scenarios::RESUME,
        &hand_off::TWO,
        &readers,
        &downgrade,
        &permits_and_writer,
        &beside_another,
    ];
    for scenario in scenarios {
        let all = whole(scenario, Order::NearestFirst, Reduction::Off);
        for order in [Order::NearestFirst, Order::DepthFirst] {
            let reduced = whole(scenario, order, Reduction::On);
            println!("{}: {} states of {}", scenario.name, reduced.count, all.count);
            assert!(reduced.count < all.count, "{}: {} states of {}", scenario.name, reduced.count, all.count);
            for what in scenario.covers.iter().filter(|what| all.covered.contains(**what)) {
                assert!(reduced.covered.contains(*what), "{} never came across {what:?}", scenario.name);
            }
        }
    }
}
