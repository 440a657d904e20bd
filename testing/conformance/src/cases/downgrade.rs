//! A writer becomes a reader without a moment in which the key is free.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::test_client::{ALIVE, LONG, PAST_SHORT, SHORT, TestClient, test_clients};
use fencelock_core::{Acquire, Downgrade, Expiry, FencingToken, Intent, Mode, Release, Renew};

pub(super) fn cases() -> Vec<Case> {
    const SHARED: &[Need] = &[Need::ModeChanges, Need::Shared];
    const QUEUED: &[Need] = &[Need::ModeChanges, Need::Shared, Need::Queues];
    const LEASED: &[Need] = &[Need::ModeChanges, Need::Shared, Need::Expires];
    vec![
        case_for(SHARED, a_downgraded_writer_is_a_reader_with_a_new_token),
        case_for(SHARED, a_repeated_downgrade_returns_the_same_token),
        case_for(SHARED, a_late_claim_does_not_undo_a_downgrade),
        case_for(SHARED, a_downgrade_by_another_client_changes_nothing),
        case_for(SHARED, a_downgrade_of_a_free_key_finds_it_absent),
        case_for(QUEUED, a_downgrade_lets_the_readers_in_up_to_the_next_writer).within(ALIVE),
        case_for(LEASED, a_downgrade_after_the_expiry_finds_it_absent),
        case_for(LEASED, a_downgrade_renews_the_lease),
        case_for(&[Need::LacksShared], a_downgrade_without_shared_locks_is_refused),
        case(a_release_after_a_downgrade_frees_the_key),
    ]
}

async fn downgraded(writer: &TestClient) -> FencingToken {
    match writer.downgrades().await {
        Downgrade::Downgraded { token } => token,
        other => panic!("{} should be downgraded: {other:?}", writer.key),
    }
}

async fn a_downgraded_writer_is_a_reader_with_a_new_token(fixture: &dyn Fixture) {
    let [writer, reader] = test_clients(fixture).await;
    let (reader, other) = (reader.in_mode(Mode::Shared), writer.new_attempt());
    let exclusive = writer.takes().await;
    let shared = downgraded(&writer).await;
    assert!(shared > exclusive);
    let hold = writer.hold().await;
    assert_eq!((hold.mode, hold.fence), (Mode::Shared, Some(shared)));
    other.is_refused().await;
    assert!(reader.takes().await > shared);
    assert!(matches!(writer.renews().await, Renew::Renewed { .. }));
    assert_eq!(writer.releases().await, Release::Released);
    other.is_refused().await;
    assert_eq!(reader.releases().await, Release::Released);
    other.takes().await;
}

async fn a_repeated_downgrade_returns_the_same_token(fixture: &dyn Fixture) {
    let [writer, reader] = test_clients(fixture).await;
    let reader = reader.in_mode(Mode::Shared);
    writer.takes().await;
    let token = downgraded(&writer).await;
    reader.takes().await;
    assert_eq!(downgraded(&writer).await, token);
    assert_eq!(writer.seen().await.holders.count(), 2);
}

async fn a_late_claim_does_not_undo_a_downgrade(fixture: &dyn Fixture) {
    let [writer, reader] = test_clients(fixture).await;
    let reader = reader.in_mode(Mode::Shared);
    writer.takes().await;
    let token = downgraded(&writer).await;
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll] {
        writer.is_granted_again(&writer.claims(intent).await, token);
    }
    reader.takes().await;
}

async fn a_downgrade_by_another_client_changes_nothing(fixture: &dyn Fixture) {
    let [writer, stranger] = test_clients(fixture).await;
    let fence = writer.takes().await;
    assert_eq!(stranger.downgrades().await, Downgrade::TakenBy(writer.holders()));
    assert_eq!(writer.hold().await.mode, Mode::Exclusive);
    writer.still_holds_with(fence).await;
}

async fn a_downgrade_of_a_free_key_finds_it_absent(fixture: &dyn Fixture) {
    let [writer] = test_clients(fixture).await;
    assert_eq!(writer.downgrades().await, Downgrade::Absent);
    writer.takes().await;
    writer.releases().await;
    assert_eq!(writer.downgrades().await, Downgrade::Absent);
    assert_eq!(writer.inspects().await, None);
}

async fn a_downgrade_lets_the_readers_in_up_to_the_next_writer(fixture: &dyn Fixture) {
    let [writer, next, a, b, last] = test_clients(fixture).await;
    let [a, b, last] = [a, b, last].map(|reader| reader.in_mode(Mode::Shared));
    writer.takes().await;
    for (ahead, waiter) in (0..).zip([&a, &b, &next, &last]) {
        waiter.is_queued(ahead).await;
    }
    let token = downgraded(&writer).await;
    assert_eq!(writer.seen().await.holders.count(), 3, "without a poll");
    assert!(a.still_holds().await > token);
    b.still_holds().await;
    for (ahead, waiter) in (0..).zip([&next, &last]) {
        let answer = waiter.polls().await;
        assert!(matches!(answer, Acquire::Queued { ahead: before, .. } if before == ahead), "{answer:?}");
    }
    for reader in [&a, &writer, &b] {
        assert_eq!(reader.releases().await, Release::Released);
    }
    next.still_holds().await;
}

async fn a_downgrade_after_the_expiry_finds_it_absent(fixture: &dyn Fixture) {
    let [writer, next] = test_clients(fixture).await;
    let writer = writer.for_ttl(SHORT);
    writer.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(writer.downgrades().await, Downgrade::Absent);
    next.takes().await;
    assert_eq!(writer.downgrades().await, Downgrade::TakenBy(next.holders()));
}

async fn a_downgrade_renews_the_lease(fixture: &dyn Fixture) {
    let [writer] = test_clients(fixture).await;
    writer.clone().for_ttl(LONG / 4).takes().await;
    downgraded(&writer).await;
    let Expiry::In(left) = writer.hold().await.expiry else { panic!("it should expire") };
    assert!(left > LONG / 2, "{left:?} of {LONG:?}");
}

async fn a_downgrade_without_shared_locks_is_refused(fixture: &dyn Fixture) {
    let [writer] = test_clients(fixture).await;
    let fence = writer.takes().await;
    let refusal = writer.backend.downgrade(&writer.renewal()).await.expect_err("refused");
    assert!(refusal.is_permanent(), "{refusal}");
    writer.still_holds_with(fence).await;
    assert_eq!(writer.hold().await.mode, Mode::Exclusive);
}

async fn a_release_after_a_downgrade_frees_the_key(fixture: &dyn Fixture) {
    let [writer, next] = test_clients(fixture).await;
    writer.takes().await;
    // Refused where there are no shared locks, and harmless.
    let _ = writer.backend.downgrade(&writer.renewal()).await;
    assert_eq!(writer.releases().await, Release::Released);
    next.takes().await;
}
