//! A renewal neither creates, nor shortens, nor frees.

use crate::Place;
use crate::case::{Case, Need, case, case_for};
use crate::in_time::in_time;
use crate::rival::{ALIVE, GRAIN, LONG, PAST_SHORT, Rival, SHORT, rivals, told};
use fencelock_core::{Release, Renew};
use std::time::Duration;
use tokio::time::Instant;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_renewal_by_the_holder_is_renewed),
        case(a_renewal_of_a_free_key_finds_it_absent_and_does_not_take_it),
        case(a_renewal_by_a_rival_is_told_who_has_it),
        case_for(&[Need::Expires], a_renewal_runs_its_whole_ttl_from_when_it_is_made),
        case_for(&[Need::Expires], a_hold_that_is_renewed_outlives_its_first_ttl),
        case_for(&[Need::Expires], a_shorter_renewal_does_not_shorten),
        case_for(&[Need::Expires], five_renewals_of_five_seconds_leave_at_most_five),
        case_for(&[Need::Expires], a_renewal_after_the_expiry_does_not_take_it_again),
        case_for(&[Need::Expires], a_renewal_after_somebody_elses_hold_came_and_went_finds_it_absent),
        case_for(&[Need::Expires], a_renewal_after_a_takeover_changes_nothing_for_the_new_holder),
        case_for(&[Need::Queues], a_renewal_says_how_many_wait).within(ALIVE),
        case_for(&[Need::Queues], a_renewal_from_the_line_takes_nothing).within(ALIVE),
        case(renewals_in_one_batch_are_answered_in_their_order),
        case(an_empty_batch_has_no_answers),
        case(a_batch_may_be_large),
    ]
}

async fn a_renewal_by_the_holder_is_renewed(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 0 });
    assert_eq!(a.has_it().await, fence, "a renewal is no new grant");
    b.finds_it_busy().await;
}

async fn a_renewal_of_a_free_key_finds_it_absent_and_does_not_take_it(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
    assert_eq!(b.releases().await, Release::Released);
    assert_eq!(b.renews().await, Renew::Absent, "nor after a release");
    assert_eq!(a.inspects().await, None);
}

async fn a_renewal_by_a_rival_is_told_who_has_it(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    assert_eq!(b.renews().await, Renew::TakenBy(a.holders()));
    assert_eq!(a.has_it().await, fence);
}

async fn a_renewal_runs_its_whole_ttl_from_when_it_is_made(place: &dyn Place) {
    let [a] = rivals(place).await;
    a.takes().await;
    place.let_time_pass(Duration::from_secs(1)).await;
    assert!(a.time_left().await + Duration::from_secs(1) <= LONG + GRAIN);
    let asked = Instant::now();
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 0 });
    has_at_least(&a, LONG, asked).await;
}

/// The hold lasts `whole` from `asked` or later.
async fn has_at_least(a: &Rival, whole: Duration, asked: Instant) {
    let left = a.time_left().await;
    let gone = asked.elapsed() + GRAIN;
    assert!(left + gone >= whole && left <= whole, "{left:?} left of {whole:?} after {gone:?} at most");
}

async fn a_hold_that_is_renewed_outlives_its_first_ttl(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    in_time(SHORT, async {
        let first = a.clone().for_ttl(SHORT);
        first.takes().await;
        place.let_time_pass(SHORT / 2).await;
        assert!(matches!(first.renews().await, Renew::Renewed { .. }));
        assert!(matches!(a.renews().await, Renew::Renewed { .. }));
    })
    .await;
    place.let_time_pass(PAST_SHORT).await;
    b.finds_it_busy().await;
}

async fn a_shorter_renewal_does_not_shorten(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let taken = Instant::now();
    a.takes().await;
    let shorter = a.clone().for_ttl(SHORT);
    assert!(matches!(shorter.renews().await, Renew::Renewed { .. }));
    has_at_least(&a, LONG, taken).await;
    place.let_time_pass(PAST_SHORT).await;
    b.finds_it_busy().await;
}

async fn five_renewals_of_five_seconds_leave_at_most_five(place: &dyn Place) {
    let [a] = rivals(place).await;
    let a = a.for_ttl(FIVE_SECONDS);
    a.takes().await;
    for _ in 0..5 {
        assert!(matches!(a.renews().await, Renew::Renewed { .. }));
    }
    let left = a.time_left().await;
    assert!(left <= FIVE_SECONDS, "{left:?}");
}

async fn a_renewal_after_the_expiry_does_not_take_it_again(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    place.let_time_pass(PAST_SHORT).await;
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
    b.takes().await;
}

async fn a_renewal_after_somebody_elses_hold_came_and_went_finds_it_absent(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    place.let_time_pass(PAST_SHORT).await;
    b.takes().await;
    assert_eq!(b.releases().await, Release::Released);
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
}

async fn a_renewal_after_a_takeover_changes_nothing_for_the_new_holder(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    place.let_time_pass(PAST_SHORT).await;
    let b = b.for_ttl(FIVE_SECONDS);
    let fence = b.takes().await;
    let late = a.for_ttl(LONG);
    assert_eq!(late.renews().await, Renew::TakenBy(b.holders()));
    let left = b.time_left().await;
    assert!(left <= FIVE_SECONDS, "{left:?} left: the late renewal made the other's hold longer");
    assert_eq!(b.has_it().await, fence);
}

async fn a_renewal_says_how_many_wait(place: &dyn Place) {
    let [a, b, c] = rivals(place).await;
    a.takes().await;
    b.stands_in_line(0).await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 1 });
    c.stands_in_line(1).await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 2 });
    b.releases().await;
    assert_eq!(a.renews().await, Renew::Renewed { waiters: 1 });
}

async fn a_renewal_from_the_line_takes_nothing(place: &dyn Place) {
    let [a, b] = rivals(place).await;
    let fence = a.takes().await;
    b.stands_in_line(0).await;
    assert_eq!(b.renews().await, Renew::TakenBy(a.holders()));
    assert_eq!(a.has_it().await, fence);
    b.stands_in_line(0).await;
}

async fn renewals_in_one_batch_are_answered_in_their_order(place: &dyn Place) {
    let [client, other_client] = rivals(place).await;
    let (mine, free, also_mine) = (client.elsewhere(), client.elsewhere(), client.elsewhere());
    let others = Rival { key: client.key.clone(), ..other_client };
    mine.takes().await;
    also_mine.takes().await;
    others.takes().await;
    let batch = [free.renewal(), mine.renewal(), client.renewal(), also_mine.renewal(), mine.renewal()];
    let answers: Vec<_> = client.backend.renew(&batch).await.into_iter().map(told).collect();
    let renewed = Renew::Renewed { waiters: 0 };
    let taken = Renew::TakenBy(others.holders());
    assert_eq!(answers, [Renew::Absent, renewed.clone(), taken, renewed.clone(), renewed]);
}

async fn an_empty_batch_has_no_answers(place: &dyn Place) {
    let [a] = rivals(place).await;
    assert!(a.backend.renew(&[]).await.is_empty());
}

async fn a_batch_may_be_large(place: &dyn Place) {
    let [client] = rivals(place).await;
    let held: Vec<_> = (0..300).map(|_| client.elsewhere()).collect();
    for (i, rival) in held.iter().enumerate() {
        if i % 3 != 0 {
            rival.takes().await;
        }
    }
    let batch: Vec<_> = held.iter().map(Rival::renewal).collect();
    let answers = client.backend.renew(&batch).await;
    assert_eq!(answers.len(), batch.len());
    for (i, answer) in answers.into_iter().map(told).enumerate() {
        let expected = if i % 3 == 0 { Renew::Absent } else { Renew::Renewed { waiters: 0 } };
        assert_eq!(answer, expected, "the {i}th of the batch");
    }
}
