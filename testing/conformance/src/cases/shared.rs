//! Shared locks: any number of readers, or one writer, in the order of arrival.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::deadline::in_time;
use crate::test_client::{ALIVE, PAST_SHORT, SHORT, TestClient, test_clients};
use fencelock_core::{Acquire, Mode, Release, Renew};

pub(super) fn cases() -> Vec<Case> {
    const SHARED: &[Need] = &[Need::Shared];
    const QUEUED: &[Need] = &[Need::Shared, Need::Queues];
    const LEASED_QUEUE: &[Need] = &[Need::Shared, Need::Queues, Need::Expires];
    vec![
        case_for(SHARED, readers_hold_a_key_together),
        case_for(SHARED, a_writer_is_refused_during_readers),
        case_for(SHARED, a_reader_is_refused_during_a_writer),
        case_for(SHARED, a_writer_gets_the_key_after_the_last_reader),
        case_for(SHARED, the_fences_of_readers_and_writers_increase),
        case_for(QUEUED, readers_in_a_row_are_let_in_together).within(ALIVE),
        case_for(QUEUED, a_reader_does_not_overtake_a_waiting_writer).within(ALIVE),
        case_for(QUEUED, a_reader_behind_a_writer_is_let_in_when_the_writer_gives_up).within(ALIVE),
        case_for(QUEUED, the_last_reader_hands_over_to_the_writer).within(ALIVE),
        case_for(&[Need::Shared, Need::Expires], a_reader_that_died_is_gone_although_another_one_renews),
        case_for(LEASED_QUEUE, a_writer_gets_the_key_of_readers_that_died),
        case_for(LEASED_QUEUE, a_writer_that_died_in_the_queue_does_not_stop_readers),
    ]
}

/// Clients that read.
async fn readers<const N: usize>(fixture: &dyn Fixture) -> [TestClient; N] {
    test_clients::<N>(fixture).await.map(|client| client.in_mode(Mode::Shared))
}

async fn readers_hold_a_key_together(fixture: &dyn Fixture) {
    let [a, b, c] = readers(fixture).await;
    for reader in [&a, &b, &c] {
        reader.takes().await;
    }
    for reader in [&a, &b, &c] {
        reader.still_holds().await;
    }
}

async fn a_writer_is_refused_during_readers(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    b.takes().await;
    let occupied = writer.is_refused().await;
    assert_eq!(occupied.holders.count(), 2, "{occupied:?}");
    for reader in [&a, &b] {
        let listed = occupied.holders.iter().any(|holder| holder.holder_id() == Some(reader.holder.id));
        assert!(listed, "{occupied:?} should list {}", reader.holder.id);
    }
}

async fn a_reader_is_refused_during_a_writer(fixture: &dyn Fixture) {
    let [reader] = readers(fixture).await;
    let writer = reader.new_attempt().in_mode(Mode::Exclusive);
    writer.takes().await;
    assert_eq!(reader.is_refused().await.holders, writer.holders());
}

async fn a_writer_gets_the_key_after_the_last_reader(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    b.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(writer.is_refused().await.holders, b.holders());
    assert_eq!(b.releases().await, Release::Released);
    writer.takes().await;
}

async fn the_fences_of_readers_and_writers_increase(fixture: &dyn Fixture) {
    let [a, b, c] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    let mut fences = vec![a.takes().await, b.takes().await];
    a.releases().await;
    fences.push(c.takes().await);
    b.releases().await;
    c.releases().await;
    fences.push(writer.takes().await);
    writer.releases().await;
    fences.push(a.new_attempt().takes().await);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

async fn readers_in_a_row_are_let_in_together(fixture: &dyn Fixture) {
    let [a, b, c, last] = readers(fixture).await;
    let [first_writer, writer] = [0, 1].map(|_| a.new_attempt().in_mode(Mode::Exclusive));
    first_writer.takes().await;
    for (ahead, waiter) in (0..).zip([&a, &b, &c, &writer, &last]) {
        waiter.is_queued(ahead).await;
    }
    assert_eq!(first_writer.releases().await, Release::Released);
    // The order of their polls is not the order of their grants.
    let fences = [c.still_holds().await, b.still_holds().await, a.still_holds().await];
    assert!(fences.is_sorted_by(|later, earlier| earlier < later), "{fences:?} should follow the queue");
    for (ahead, waiter) in (0..).zip([&writer, &last]) {
        let answer = waiter.polls().await;
        assert!(matches!(answer, Acquire::Queued { ahead: before, .. } if before == ahead), "{answer:?}");
    }
}

async fn a_reader_does_not_overtake_a_waiting_writer(fixture: &dyn Fixture) {
    let [a, b, c] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    writer.is_queued(0).await;
    assert_eq!(b.is_refused().await.holders, a.holders(), "it would fit, but the writer was first");
    c.is_queued(1).await;
    assert_eq!(a.releases().await, Release::Released);
    writer.still_holds().await;
    assert_eq!(c.is_queued(0).await.holders, writer.holders());
    assert_eq!(writer.releases().await, Release::Released);
    c.still_holds().await;
}

async fn a_reader_behind_a_writer_is_let_in_when_the_writer_gives_up(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    writer.is_queued(0).await;
    b.is_queued(1).await;
    assert_eq!(writer.releases().await, Release::TakenBy(a.holders()));
    assert!(b.seen().await.has(b.holder.id), "it has room, without a poll");
    b.still_holds().await;
}

async fn the_last_reader_hands_over_to_the_writer(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    let fence = b.takes().await;
    writer.is_queued(0).await;
    b.releases().await;
    assert!(matches!(writer.polls().await, Acquire::Queued { ahead: 0, .. }));
    a.releases().await;
    assert!(writer.still_holds().await > fence);
}

async fn a_reader_that_died_is_gone_although_another_one_renews(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    a.for_ttl(SHORT).takes().await;
    b.takes().await;
    for _ in 0..3 {
        assert!(matches!(b.renews().await, Renew::Renewed { .. }));
        fixture.let_time_pass(PAST_SHORT / 2).await;
    }
    assert_eq!(b.hold().await.holder_id(), Some(b.holder.id));
}

async fn a_writer_gets_the_key_of_readers_that_died(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    let fence = in_time(SHORT, async {
        a.for_ttl(SHORT).takes().await;
        let fence = b.for_ttl(SHORT).takes().await;
        writer.is_queued(0).await;
        fence
    })
    .await;
    assert!(writer.polls_until_granted(fixture).await > fence);
}

async fn a_writer_that_died_in_the_queue_does_not_stop_readers(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let dead = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    dead.is_queued(0).await;
    b.is_queued(1).await;
    b.polls_until_granted(fixture).await;
    a.still_holds().await;
}
