//! A hold ends exactly with its TTL, or never ends and reports that.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::test_client::{PAST_SHORT, SHORT, test_clients};
use fencelock_core::{Acquire, Expiry, Ttl};
use std::time::Duration;

const ONE_SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(2);
/// When the claim is sent again.
const AGAIN: Duration = Duration::from_millis(800);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Expires], a_hold_expires_without_renewal),
        case_for(&[Need::Expires], a_hold_does_not_end_before_its_ttl).within(ONE_SECOND),
        case_for(&[Need::Expires], a_repeated_claim_extends_the_lease).within(AGAIN + LEASE),
        case_for(&[Need::Expires], an_expired_hold_is_not_shown),
        case_for(&[Need::Expires], a_poll_by_an_expired_holder_is_gone),
        case_for(&[Need::Expires], every_hold_lasts_for_its_requested_ttl),
        case_for(&[Need::Endless], a_hold_without_expiry_reports_it_and_persists),
    ]
}

async fn a_hold_expires_without_renewal(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.for_ttl(SHORT).takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    b.takes().await;
}

async fn a_hold_does_not_end_before_its_ttl(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.for_ttl(ONE_SECOND).takes().await;
    fixture.let_time_pass(ONE_SECOND * 8 / 10).await;
    b.is_refused().await;
}

/// The client counts the lease from its last claim, for example if the reply to the first one was lost.
async fn a_repeated_claim_extends_the_lease(fixture: &dyn Fixture) {
    let [polls] = test_clients(fixture).await;
    let polls = polls.for_ttl(LEASE);
    let tries = polls.with_new_key();
    let fences = (polls.takes().await, tries.takes().await);
    fixture.let_time_pass(AGAIN).await;
    let (again, polled) = (tries.tries().await, polls.polls().await);
    if polled == Acquire::Gone {
        // The machine has stopped for the rest of the lease, perhaps before the other claim.
        return;
    }
    polls.is_granted_again(&polled, fences.0);
    tries.is_granted_again(&again, fences.1);
    fixture.let_time_pass(LEASE * 7 / 10).await;
    for held in [polls, tries] {
        let answer = held.new_attempt().tries().await;
        assert!(
            matches!(answer, Acquire::Busy(_)),
            "a repeated claim did not extend the lease to its whole TTL: {answer:?}"
        );
    }
}

async fn an_expired_hold_is_not_shown(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(a.inspects().await, None);
    assert_eq!(a.lists().await, None);
}

async fn a_poll_by_an_expired_holder_is_gone(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    a.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(a.polls().await, Acquire::Gone);
    assert_eq!(b.inspects().await, None, "the late poll did not acquire the key");
}

async fn every_hold_lasts_for_its_requested_ttl(fixture: &dyn Fixture) {
    let [long] = test_clients(fixture).await;
    let short = long.with_new_key().for_ttl(SHORT);
    long.takes().await;
    short.takes().await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(short.inspects().await, None);
    long.new_attempt().is_refused().await;
}

async fn a_hold_without_expiry_reports_it_and_persists(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let a = a.for_ttl(Ttl::MIN);
    let fence = a.takes().await;
    fixture.let_time_pass(Ttl::MIN * 5).await;
    assert_eq!(b.is_refused().await.expiry, Expiry::Never);
    a.still_holds_with(fence).await;
}
