//! Other programs use the same names: a key that they hold is busy, and a key that they delete is free.

use crate::case::{Case, Need, case_for};
use crate::test_client::{ALIVE, LONG, PAST_SHORT, SHORT, TestClient, test_clients};
use crate::{Fixture, Foreign, ForeignAttempt};
use fencelock_core::{Acquire, Expiry, Occupant, Release, Renew};

const NEEDS: &[Need] = &[Need::Foreign];
const QUEUED: &[Need] = &[Need::Foreign, Need::Queues];

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(NEEDS, a_foreign_lock_is_busy),
        case_for(NEEDS, a_held_key_is_busy_for_another_program),
        case_for(NEEDS, a_foreign_lock_without_ttl_does_not_expire),
        case_for(NEEDS, a_foreign_value_of_another_type_is_busy),
        case_for(NEEDS, a_hold_that_another_program_deletes_is_absent_and_not_taken_again),
        case_for(NEEDS, a_hold_that_another_program_replaces_is_taken),
        case_for(NEEDS, a_foreign_lock_expires_with_its_ttl),
        case_for(QUEUED, a_waiter_gets_a_key_that_another_program_deletes).within(ALIVE),
        case_for(QUEUED, a_waiter_behind_a_foreign_value_is_queued).within(ALIVE),
    ]
}

fn foreign(fixture: &dyn Fixture) -> &dyn Foreign {
    fixture.foreign().expect("the case needs it")
}

fn is_foreign(by: &Occupant) -> bool {
    matches!(by, Occupant::Foreign(what) if !what.to_string().is_empty())
}

fn check_foreign(by: &Occupant) {
    assert!(is_foreign(by), "{by:?}");
}

async fn a_foreign_lock_is_busy(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    assert_eq!(foreign(fixture).take(&a.key, "their-token", Some(LONG)).await, ForeignAttempt::Took);
    let occupied = a.is_refused().await;
    check_foreign(occupied.holders.first());
    assert!(occupied.expiry.span().is_some_and(|left| left <= LONG), "{occupied:?}");
    let hold = a.hold().await;
    check_foreign(&hold.occupant);
    assert_eq!(hold.fence, None);
    assert!(matches!(a.renews().await, Renew::TakenBy(by) if is_foreign(by.first())));
    assert!(matches!(a.releases().await, Release::TakenBy(by) if is_foreign(by.first())));
    a.is_refused().await;
}

async fn a_held_key_is_busy_for_another_program(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let theirs = || foreign(fixture).take(&a.key, "their-token", Some(LONG));
    let fence = a.takes().await;
    assert_eq!(theirs().await, ForeignAttempt::Busy);
    a.still_holds_with(fence).await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(theirs().await, ForeignAttempt::Took, "a release removes the key");
}

async fn a_foreign_lock_without_ttl_does_not_expire(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    foreign(fixture).take(&a.key, "their-token", None).await;
    assert_eq!(a.is_refused().await.expiry, Expiry::Never);
    assert_eq!(a.hold().await.expiry, Expiry::Never);
}

async fn a_foreign_value_of_another_type_is_busy(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    foreign(fixture).put_foreign_value(&a.key).await;
    check_foreign(a.is_refused().await.holders.first());
    check_foreign(&a.hold().await.occupant);
    assert!(matches!(a.renews().await, Renew::TakenBy(by) if is_foreign(by.first())));
    assert!(matches!(a.releases().await, Release::TakenBy(by) if is_foreign(by.first())));
    foreign(fixture).delete(&a.key).await;
    a.takes().await;
}

async fn a_hold_that_another_program_deletes_is_absent_and_not_taken_again(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let earlier = a.takes().await;
    foreign(fixture).delete(&a.key).await;
    assert_eq!(a.renews().await, Renew::Absent);
    assert_eq!(b.inspects().await, None);
    assert_eq!(a.releases().await, Release::Absent);
    assert!(b.takes().await > earlier, "the fence persists after the lock");
}

async fn a_hold_that_another_program_replaces_is_taken(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    a.takes().await;
    foreign(fixture).delete(&a.key).await;
    assert_eq!(foreign(fixture).take(&a.key, "their-token", Some(LONG)).await, ForeignAttempt::Took);
    assert!(matches!(a.renews().await, Renew::TakenBy(by) if is_foreign(by.first())));
    assert!(matches!(a.releases().await, Release::TakenBy(by) if is_foreign(by.first())));
    assert_eq!(
        foreign(fixture).take(&a.key, "another", Some(LONG)).await,
        ForeignAttempt::Busy,
        "the foreign lock is still there"
    );
}

async fn a_foreign_lock_expires_with_its_ttl(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    foreign(fixture).take(&a.key, "their-token", Some(SHORT)).await;
    fixture.let_leases_end(PAST_SHORT).await;
    a.takes().await;
}

async fn a_waiter_gets_a_key_that_another_program_deletes(fixture: &dyn Fixture) {
    let [a, hasty] = test_clients(fixture).await;
    foreign(fixture).take(&a.key, "their-token", Some(LONG)).await;
    check_foreign(a.is_queued(0).await.holders.first());
    foreign(fixture).delete(&a.key).await;
    assert_eq!(hasty.is_refused().await.holders, a.holders(), "a try does not overtake a waiter");
    a.still_holds().await;
}

async fn a_waiter_behind_a_foreign_value_is_queued(fixture: &dyn Fixture) {
    let [a, b]: [TestClient; 2] = test_clients(fixture).await;
    foreign(fixture).put_foreign_value(&a.key).await;
    check_foreign(a.is_queued(0).await.holders.first());
    b.is_queued(1).await;
    assert!(matches!(a.polls().await, Acquire::Queued { ahead: 0, .. }));
}
