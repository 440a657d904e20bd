//! Tasks of one client that pass permits on, on a backend where other clients claim too, in random schedules: a task that may use permits
//! has a hold on the backend of its own, the tasks come in order, and nothing is left. Where requests are counted, and where another
//! client waits, the schedule is given.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod backend;
mod given;
mod world;

use proptest::prelude::*;
use world::{Act, World};

/// With `odds` some tasks claim with another TTL.
fn acts(odds: bool) -> impl Strategy<Value = Vec<Act>> {
    let which = any::<prop::sample::Index>;
    let act = prop_oneof![
        10 => prop::bool::weighted(0.1).prop_map(move |odd| Act::Enter { odd: odd && odds }),
        2 => which().prop_map(Act::Cancel),
        8 => which().prop_map(Act::Release),
        1 => which().prop_map(Act::Detach),
        2 => (0..3_u8, 1..4_u32).prop_map(|(number, weight)| Act::OtherComes { number, weight }),
        3 => (0..3_u8).prop_map(|number| Act::OtherGoes { number }),
        1 => Just(Act::Forget),
        6 => prop_oneof![0..5_u64, 5..1500_u64].prop_map(Act::Pass),
        1 => (any::<bool>(), 1..4_u8).prop_map(|(carried_out, requests)| Act::Lose { carried_out, requests }),
    ];
    prop::collection::vec(act, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_task_with_permits_has_a_hold_of_its_own(
        acts in any::<bool>().prop_flat_map(acts), weight in 1..3_u32, limit in 3..5_u32,
    ) {
        let mut world = World::new(weight, limit);
        for act in &acts {
            world.act(act);
        }
        world.wind_down();
    }
}
