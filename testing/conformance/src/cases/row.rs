//! Several holders of one key: each has its own lease, token and end.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::cases::permits::permits;
use crate::deadline::in_time;
use crate::event_recorder::EventRecorder;
use crate::test_client::{ALIVE, LONG, PAST_SHORT, SHORT, TestClient, expect_known, test_clients, ttl};
use fencelock_core::{Acquire, Event, Eviction, HolderInfo, Holding, Intent, Mode, Release, Renew, Renewal};
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    const SHARED: &[Need] = &[Need::Shared];
    const LEASED: &[Need] = &[Need::Shared, Need::Expires];
    const QUEUED: &[Need] = &[Need::Shared, Need::Queues];
    const EVICTED: &[Need] = &[Need::Shared, Need::Evicts];
    vec![
        case_for(SHARED, each_holder_has_its_own_grant_after_repeated_claims),
        case_for(SHARED, a_release_ends_one_hold_of_many),
        case_for(SHARED, a_row_is_shown_with_all_holders_and_their_modes),
        case_for(&[Need::Permits], a_row_of_permits_is_shown_with_their_weights),
        case_for(&[Need::Shared, Need::Admin], a_row_is_listed_as_one_key),
        case_for(SHARED, many_holders_are_counted),
        case_for(SHARED, several_holders_of_one_key_are_renewed_in_one_batch),
        case_for(LEASED, one_holder_expires_and_the_others_stay),
        case_for(LEASED, a_renewal_extends_the_lease_of_its_holder_only),
        case_for(LEASED, a_row_ends_with_its_last_lease),
        case_for(QUEUED, each_reader_is_notified_of_its_grant),
        case_for(QUEUED, a_renewal_counts_the_waiters_of_a_row).within(ALIVE),
        case_for(EVICTED, an_eviction_ends_one_hold_of_many),
        case_for(EVICTED, an_eviction_of_a_released_reader_changes_nothing),
        case_for(EVICTED, an_eviction_of_all_holders_frees_the_key),
        case_for(&[Need::Shared, Need::Evicts, Need::Queues], an_eviction_of_the_last_reader_lets_the_writer_in)
            .within(ALIVE),
    ]
}

async fn readers<const N: usize>(fixture: &dyn Fixture) -> [TestClient; N] {
    test_clients::<N>(fixture).await.map(|client| client.in_mode(Mode::Shared))
}

fn hold_of<'a>(seen: &'a Holding, client: &TestClient) -> &'a HolderInfo {
    let mut holds = seen.holders.iter().filter(|hold| hold.holder_id() == Some(client.holder.id));
    let hold = holds.next().unwrap_or_else(|| panic!("{} should be listed: {seen:?}", client.holder.id));
    assert!(holds.next().is_none(), "listed twice: {seen:?}");
    hold
}

/// The part of a holding that lists this holder only.
fn only(seen: &Holding, client: &TestClient) -> Holding {
    Holding::new(seen.key.clone(), hold_of(seen, client).clone())
}

async fn each_holder_has_its_own_grant_after_repeated_claims(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let mut fences = [a.takes().await, b.takes().await];
    // A late node of a quorum may have granted the first claims in another order, and so other tokens. The next claim raises them.
    let may_raise = a.backend.capabilities().fresh_holders;
    for _ in 0..3 {
        for intent in [Intent::Try, Intent::Enqueue, Intent::Poll] {
            for (reader, fence) in [&a, &b].into_iter().zip(&mut fences) {
                let answer = reader.claims(intent).await;
                let Acquire::Granted { tokens } = answer else { panic!("{intent:?}: {answer:?}") };
                assert!(tokens == (*fence).into() || may_raise && tokens.last() > *fence, "{intent:?}: {answer:?}");
                *fence = tokens.last();
            }
        }
    }
    assert_eq!(a.seen().await.holders.count(), 2);
}

async fn a_release_ends_one_hold_of_many(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    let fence = b.takes().await;
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()), "the second release frees nothing");
    assert_eq!(a.polls().await, Acquire::Gone);
    writer.is_refused().await;
    b.still_holds_with(fence).await;
    assert_eq!(b.releases().await, Release::Released);
    assert_eq!(b.releases().await, Release::Absent);
    writer.takes().await;
}

async fn a_row_is_shown_with_all_holders_and_their_modes(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let fences = [a.takes().await, b.takes().await];
    let seen = b.seen().await;
    assert_eq!(seen.holders.count(), 2, "{seen:?}");
    for (reader, fence) in [&a, &b].into_iter().zip(fences) {
        let hold = hold_of(&seen, reader);
        assert_eq!((hold.mode, hold.fence), (Mode::Shared, Some(fence)), "{seen:?}");
    }
    a.releases().await;
    b.releases().await;
    assert_eq!(b.inspects().await, None);
}

async fn a_row_of_permits_is_shown_with_their_weights(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let (a, b) = (a.in_mode(permits(2, 7)), b.in_mode(permits(5, 7)));
    a.takes().await;
    b.takes().await;
    let seen = a.seen().await;
    assert_eq!((hold_of(&seen, &a).mode, hold_of(&seen, &b).mode), (a.mode, b.mode), "{seen:?}");
}

async fn a_row_is_listed_as_one_key(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    a.takes().await;
    b.takes().await;
    let listed = a.lists().await.expect("a held key is listed");
    assert_eq!(listed.holders.count(), 2, "{listed:?}");
    assert_eq!((hold_of(&listed, &a).mode, hold_of(&listed, &b).mode), (Mode::Shared, Mode::Shared), "{listed:?}");
}

async fn many_holders_are_counted(fixture: &dyn Fixture) {
    const MANY: usize = 100;
    let [first] = readers(fixture).await;
    for _ in 0..MANY {
        first.new_attempt().takes().await;
    }
    assert_eq!(first.seen().await.holders.count(), 100);
    let writer = first.in_mode(Mode::Exclusive);
    let refused = writer.is_refused().await;
    assert_eq!(refused.holders.count(), 100);
    assert!(refused.holders.iter().count() < MANY, "an answer to a claim lists some of very many");
}

async fn several_holders_of_one_key_are_renewed_in_one_batch(fixture: &dyn Fixture) {
    let [a, stranger] = readers(fixture).await;
    // A client renews its own holds, and some backends know no others.
    let b = a.new_attempt();
    a.takes().await;
    b.takes().await;
    let answers = a.backend.renew(&[a.renewal(), stranger.renewal(), b.renewal()]).await;
    let answers: Vec<_> = answers.into_iter().map(expect_known).collect();
    assert_eq!((answers.len(), &answers[0]), (3, &Renew::Renewed { waiters: 0 }));
    assert_eq!(answers[2], Renew::Renewed { waiters: 0 });
    assert!(matches!(&answers[1], Renew::TakenBy(holders) if holders.count() == 2), "{answers:?}");
}

async fn one_holder_expires_and_the_others_stay(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    let a = a.for_ttl(SHORT);
    a.takes().await;
    let fence = b.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(a.renews().await, Renew::TakenBy(b.holders()));
    assert_eq!(a.polls().await, Acquire::Gone);
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    assert_eq!(writer.is_refused().await.holders, b.holders());
    b.still_holds_with(fence).await;
}

async fn a_renewal_extends_the_lease_of_its_holder_only(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let (a, b) = (a.for_ttl(SHORT), b.for_ttl(SHORT));
    in_time(SHORT, async {
        a.takes().await;
        b.takes().await;
        let longer = Renewal::new(a.key.clone(), a.holder.id, ttl(LONG));
        assert_eq!(a.backend.renew(&[longer]).await.remove(0), Ok(Renew::Renewed { waiters: 0 }));
    })
    .await;
    fixture.let_leases_end(PAST_SHORT).await;
    a.still_holds().await;
    assert_eq!(b.polls().await, Acquire::Gone);
    assert_eq!(a.hold().await.holder_id(), Some(a.holder.id));
}

async fn a_row_ends_with_its_last_lease(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    let (a, b) = (a.for_ttl(SHORT), b.for_ttl(SHORT * 2));
    a.takes().await;
    b.takes().await;
    fixture.let_leases_end(PAST_SHORT * 2).await;
    assert_eq!(writer.inspects().await, None);
    writer.takes().await;
    assert_eq!(b.renews().await, Renew::TakenBy(writer.holders()));
    assert_eq!(b.releases().await, Release::TakenBy(writer.holders()));
    writer.still_holds().await;
}

async fn each_reader_is_notified_of_its_grant(fixture: &dyn Fixture) {
    const CHANCES: u32 = 4;
    let [a, b] = readers(fixture).await;
    let (recorder, other) = (EventRecorder::new(), EventRecorder::new());
    a.backend.listen(recorder.clone());
    b.backend.listen(other.clone());
    for _ in 0..CHANCES {
        let (first, second) = (a.new_attempt(), b.new_attempt());
        let writer = a.new_attempt().in_mode(Mode::Exclusive);
        writer.takes().await;
        first.is_queued(0).await;
        second.is_queued(1).await;
        writer.releases().await;
        let fences = tokio::join!(handed(&recorder, &first), handed(&other, &second));
        if let (Some(one), Some(two)) = fences {
            first.still_holds_with(one).await;
            second.still_holds_with(two).await;
            return;
        }
        first.releases().await;
        second.releases().await;
    }
    panic!("{CHANCES} hand-offs to two readers, but not both were notified");
}

async fn handed(recorder: &EventRecorder, to: &TestClient) -> Option<fencelock_core::FencingToken> {
    let mine = |event: &Event| match event {
        Event::Handed { holder, tokens, .. } if *holder == to.holder.id => Some(tokens.last()),
        _ => None,
    };
    recorder.wait_for(Duration::from_secs(2), mine).await
}

async fn a_renewal_counts_the_waiters_of_a_row(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    b.takes().await;
    writer.is_queued(0).await;
    a.new_attempt().is_queued(1).await;
    for reader in [&a, &b] {
        assert_eq!(reader.renews().await, Renew::Renewed { waiters: 2 });
    }
    assert_eq!(a.seen().await.waiters, 2);
}

async fn an_eviction_ends_one_hold_of_many(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    b.takes().await;
    let seen = writer.seen().await;
    assert_eq!(writer.evicts(&only(&seen, &a)).await, Eviction::Evicted);
    assert_eq!(a.renews().await, Renew::TakenBy(b.holders()));
    assert_eq!(a.releases().await, Release::TakenBy(b.holders()));
    b.still_holds().await;
    writer.is_refused().await;
}

async fn an_eviction_of_a_released_reader_changes_nothing(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    a.takes().await;
    b.takes().await;
    let seen = b.seen().await;
    a.releases().await;
    let Eviction::Changed(Some(now)) = b.evicts(&only(&seen, &a)).await else { panic!("{} was released", a.holder.id) };
    assert!(now.has(b.holder.id) && !now.has(a.holder.id), "{now:?}");
    b.still_holds().await;
}

async fn an_eviction_of_all_holders_frees_the_key(fixture: &dyn Fixture) {
    let [a, b] = readers(fixture).await;
    a.takes().await;
    b.takes().await;
    let seen = b.seen().await;
    assert_eq!(b.evicts(&seen).await, Eviction::Evicted);
    assert_eq!(b.inspects().await, None);
    assert_eq!(a.renews().await, Renew::Absent);
    a.new_attempt().in_mode(Mode::Exclusive).takes().await;
}

async fn an_eviction_of_the_last_reader_lets_the_writer_in(fixture: &dyn Fixture) {
    let [a] = readers(fixture).await;
    let writer = a.new_attempt().in_mode(Mode::Exclusive);
    a.takes().await;
    writer.is_queued(0).await;
    let seen = writer.seen().await;
    assert_eq!(writer.evicts(&seen).await, Eviction::Evicted);
    writer.still_holds().await;
}
