//! Tasks of one client that share holds to read: they overlap no writer, and a hold is for others until the last of them leaves.

use crate::world::{Act, World};
use fencelock_core::Mode;
use proptest::prelude::*;

const WRITER_COMES: Act = Act::OtherComes { number: 0, weight: u32::MAX };
const WRITER_GOES: Act = Act::OtherGoes { number: 0 };

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let which = any::<prop::sample::Index>;
    let act = prop_oneof![
        8 => prop::bool::weighted(0.1).prop_map(|odd| Act::Enter { odd }),
        1 => which().prop_map(Act::Cancel),
        6 => which().prop_map(Act::Release),
        1 => which().prop_map(Act::Detach),
        1 => Just(WRITER_COMES),
        2 => Just(WRITER_GOES),
        6 => prop_oneof![0..5_u64, 5..1500_u64].prop_map(Act::Pass),
        1 => (any::<bool>(), 1..4_u8).prop_map(|(carried_out, requests)| Act::Lose { carried_out, requests }),
    ];
    prop::collection::vec(act, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_has_a_hold_and_overlaps_no_writer(acts in acts()) {
        let mut world = World::new(Mode::Shared);
        for act in &acts {
            world.act(act);
        }
        world.wind_down();
    }
}

#[test]
fn readers_join_in_these_schedules() {
    let mut world = World::new(Mode::Shared);
    // A key without an earlier token has one.
    world.act(&WRITER_COMES);
    world.act(&Act::Pass(1));
    world.act(&WRITER_GOES);
    world.act(&Act::Pass(1));
    for _ in 0..10 {
        world.act(&Act::Enter { odd: false });
        world.act(&Act::Pass(1));
    }
    assert_eq!((world.guards.len(), world.backend.holders().len()), (10, 1));
    assert!(world.guards.iter().all(|(grant, _)| grant.hold == world.guards[0].0.hold), "nine have joined the first");
    let mut tokens: Vec<_> = world.guards.iter().map(|(grant, _)| grant.tenure.fence).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 10, "each has a token of its own");
    // The first one that joins checks whether a client waits.
    world.act(&WRITER_COMES);
    for _ in 0..3 {
        world.act(&Act::Pass(100));
        world.act(&Act::Enter { odd: false });
    }
    world.act(&Act::Pass(100));
    assert_eq!(world.guards.len(), 11, "the others wait behind the writer");
    world.wind_down();
}
