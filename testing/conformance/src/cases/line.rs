//! Waiters are served in the order of their arrival, and a release hands over to the first who is there.

use crate::Place;
use crate::case::{Case, Need, case_for};
use crate::in_time::in_time;
use crate::rival::{ALIVE, GRAIN, LONG, PAST_SHORT, Rival, SHORT, rivals};
use fencelock_core::{Acquire, Release};
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn cases() -> Vec<Case> {
    const LEASED_LINE: &[Need] = &[Need::Queues, Need::Expires];
    vec![
        case_for(&[Need::Queues], the_line_is_served_in_the_order_of_arrival).within(ALIVE),
        case_for(&[Need::Queues], ahead_counts_who_stands_before).within(ALIVE),
        case_for(&[Need::Queues], a_try_does_not_overtake_a_waiter).within(ALIVE),
        case_for(&[Need::Queues], an_enqueue_does_not_overtake_a_waiter).within(ALIVE),
        case_for(LEASED_LINE, a_try_after_an_expiry_does_not_overtake_a_waiter).within(ALIVE),
        case_for(LEASED_LINE, a_waiter_gets_the_key_of_a_holder_that_died),
        case_for(&[Need::Queues], a_waiter_that_gave_up_is_skipped).within(ALIVE),
        case_for(&[Need::Queues], a_waiter_whose_turn_came_can_still_give_up).within(ALIVE),
        case_for(LEASED_LINE, a_dead_waiter_is_skipped),
        case_for(LEASED_LINE, a_hand_off_is_a_short_lease_and_the_claim_makes_it_a_full_one).within(ALIVE),
        case_for(LEASED_LINE, a_hand_off_that_nobody_claims_goes_to_the_next_and_the_late_claim_is_gone),
        case_for(LEASED_LINE, a_waiter_that_asks_now_and_then_keeps_its_place),
    ]
}

async fn the_line_is_served_in_the_order_of_arrival(place: &dyn Place) {
    let line: [Rival; 6] = rivals(place).await;
    line[0].takes().await;
    for (ahead, waiter) in (0..).zip(&line[1..]) {
        waiter.stands_in_line(ahead).await;
    }
    for served in 1..line.len() {
        assert_eq!(line[served - 1].releases().await, Release::Released);
        for (ahead, later) in (0..).zip(&line[served + 1..]) {
            let answer = later.polls().await;
            assert!(matches!(answer, Acquire::Queued { ahead: before, .. } if before == ahead), "{answer:?}");
        }
        line[served].has_it().await;
    }
}

async fn ahead_counts_who_stands_before(place: &dyn Place) {
    let [a, b, c, d] = rivals(place).await;
    a.takes().await;
    b.stands_in_line(0).await;
    c.stands_in_line(1).await;
    d.stands_in_line(2).await;
    assert_eq!(c.releases().await, Release::TakenBy(a.holders()));
    d.stands_in_line(1).await;
    assert_eq!(a.releases().await, Release::Released);
    b.has_it().await;
    assert_eq!(d.stands_in_line(0).await.holders, b.holders());
}

async fn a_try_does_not_overtake_a_waiter(place: &dyn Place) {
    let [a, waiter, hasty] = rivals(place).await;
    a.takes().await;
    waiter.stands_in_line(0).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(hasty.finds_it_busy().await.holders, waiter.holders());
    waiter.has_it().await;
}

async fn an_enqueue_does_not_overtake_a_waiter(place: &dyn Place) {
    let [a, waiter, hasty] = rivals(place).await;
    a.takes().await;
    waiter.stands_in_line(0).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(hasty.stands_in_line(0).await.holders, waiter.holders());
    waiter.has_it().await;
}

async fn a_try_after_an_expiry_does_not_overtake_a_waiter(place: &dyn Place) {
    let [a, waiter, hasty] = rivals(place).await;
    a.for_ttl(SHORT).takes().await;
    waiter.stands_in_line(0).await;
    place.let_time_pass(PAST_SHORT).await;
    assert_eq!(hasty.finds_it_busy().await.holders, waiter.holders());
    waiter.has_it().await;
}

async fn a_waiter_gets_the_key_of_a_holder_that_died(place: &dyn Place) {
    let [a, waiter] = rivals(place).await;
    let earlier = a.for_ttl(SHORT).takes().await;
    waiter.stands_in_line(0).await;
    assert!(waiter.waits_its_turn(place).await > earlier);
}

async fn a_waiter_that_gave_up_is_skipped(place: &dyn Place) {
    let [a, quitter, next] = rivals(place).await;
    a.takes().await;
    quitter.stands_in_line(0).await;
    next.stands_in_line(1).await;
    assert_eq!(quitter.releases().await, Release::TakenBy(a.holders()));
    assert_eq!(a.releases().await, Release::Released);
    next.has_it().await;
    assert_eq!(quitter.polls().await, Acquire::Gone);
}

async fn a_waiter_whose_turn_came_can_still_give_up(place: &dyn Place) {
    let [a, quitter, next] = rivals(place).await;
    a.takes().await;
    quitter.stands_in_line(0).await;
    next.stands_in_line(1).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(quitter.releases().await, Release::Released, "it was handed the key and did not know");
    next.has_it().await;
}

async fn a_dead_waiter_is_skipped(place: &dyn Place) {
    let [a, dead, living] = rivals(place).await;
    a.takes().await;
    dead.stands_in_line(0).await;
    living.stands_in_line(1).await;
    sleep_but_keep_asking(place, &living, place.waiter_life() + PAST_SHORT).await;
    assert_eq!(a.releases().await, Release::Released);
    living.has_it().await;
    assert_eq!(dead.polls().await, Acquire::Gone);
}

async fn sleep_but_keep_asking(place: &dyn Place, waiter: &Rival, span: Duration) {
    let step = Duration::from_millis(400);
    let mut passed = Duration::ZERO;
    while passed < span {
        in_time(ALIVE, async {
            place.let_time_pass(step).await;
            let answer = waiter.polls().await;
            assert!(matches!(answer, Acquire::Queued { .. }), "{answer:?}");
        })
        .await;
        passed += step;
    }
}

async fn a_hand_off_is_a_short_lease_and_the_claim_makes_it_a_full_one(place: &dyn Place) {
    let [a, waiter] = rivals(place).await;
    a.takes().await;
    waiter.stands_in_line(0).await;
    assert_eq!(a.releases().await, Release::Released);
    let unclaimed = waiter.time_left().await;
    assert!(unclaimed < LONG / 2, "{unclaimed:?} for a waiter that may be dead");
    let asked = Instant::now();
    waiter.has_it().await;
    let claimed = waiter.time_left().await;
    assert!(claimed + asked.elapsed() + GRAIN >= LONG, "{claimed:?}");
}

async fn a_hand_off_that_nobody_claims_goes_to_the_next_and_the_late_claim_is_gone(place: &dyn Place) {
    let [a, late, next] = rivals(place).await;
    a.takes().await;
    late.stands_in_line(0).await;
    next.stands_in_line(1).await;
    in_time(ALIVE, async {
        assert_eq!(a.releases().await, Release::Released);
        assert!(next.seen().await.has(late.holder.id));
    })
    .await;
    let fence = next.waits_its_turn(place).await;
    assert_eq!(late.polls().await, Acquire::Gone);
    assert_eq!(late.releases().await, Release::TakenBy(next.holders()));
    assert_eq!(next.has_it().await, fence);
}

async fn a_waiter_that_asks_now_and_then_keeps_its_place(place: &dyn Place) {
    let [a, patient, later] = rivals(place).await;
    a.takes().await;
    patient.stands_in_line(0).await;
    later.stands_in_line(1).await;
    sleep_but_keep_asking(place, &patient, place.waiter_life() * 2).await;
    assert_eq!(a.releases().await, Release::Released);
    patient.has_it().await;
}
