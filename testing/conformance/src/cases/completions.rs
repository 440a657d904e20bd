//! A completion is written by the holder of the key only, never goes back, and is not a hold.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::test_client::{PAST_SHORT, SHORT, TestClient, expect_known, test_clients};
use fencelock_core::{Acquire, ClearCompletion, Completion, CountedSuccess, FencingToken, WriteCompletion};
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Completions], a_key_without_a_run_has_no_completion),
        case_for(&[Need::Completions], a_completion_is_read_by_every_client_as_it_was_written),
        case_for(&[Need::Completions], a_completion_outlasts_the_hold),
        case_for(&[Need::Completions], a_completion_by_another_client_is_refused),
        case_for(&[Need::Completions], a_completion_of_a_free_key_is_refused),
        case_for(&[Need::Completions], a_completion_after_the_release_is_refused),
        case_for(&[Need::Completions, Need::Expires], a_completion_after_the_expiry_is_refused),
        case_for(&[Need::Completions, Need::Evicts], a_completion_after_a_takeover_is_refused),
        case_for(&[Need::Completions], a_later_run_is_kept_until_the_later_end),
        case_for(&[Need::Completions], a_completion_is_replaced_by_that_of_a_later_run),
        case_for(&[Need::Completions], a_completion_belongs_to_one_key),
        case_for(&[Need::Completions], a_completion_does_not_make_the_key_busy),
        case_for(&[Need::Completions, Need::AllNodesAnswer], a_completion_is_cleared_for_every_client),
        case_for(&[Need::Completions, Need::AllNodesAnswer], a_completion_of_a_later_run_is_not_cleared),
        case_for(&[Need::Completions, Need::AllNodesAnswer], a_completion_that_is_kept_longer_is_cleared),
        case_for(&[Need::Completions], confirming_a_completion_changes_nothing),
        case_for(&[Need::Completions], the_time_of_the_backend_passes),
        case_for(&[Need::Completions, Need::Node], a_restored_completion_never_replaces_that_of_a_later_run),
        case_for(&[Need::LacksCompletions], a_missing_completion_is_refused_permanently),
    ]
}

const HOUR: Duration = Duration::from_secs(3600);

async fn now(client: &TestClient) -> u64 {
    expect_known(client.backend.read_completion(&client.key).await).now_micros
}

async fn reads(client: &TestClient) -> Option<Completion> {
    expect_known(client.backend.read_completion(&client.key).await).completion
}

async fn writes(client: &TestClient, completion: &Completion) -> WriteCompletion {
    expect_known(client.backend.write_completion(&client.key, &client.holder.id, completion).await)
}

async fn clears(client: &TestClient, seen: &Completion) -> ClearCompletion {
    expect_known(client.backend.clear_completion(&client.key, seen).await)
}

/// A completion that ends so long after the present.
async fn ending_in(client: &TestClient, left: Duration, token: FencingToken) -> Completion {
    let (left, now) = (u64::try_from(left.as_micros()).expect("a short time"), now(client).await);
    Completion::new(now + left, token, now, client.holder.owner.clone())
}

async fn a_key_without_a_run_has_no_completion(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    assert_eq!(reads(&a).await, None);
    a.takes().await;
    assert_eq!(reads(&a).await, None);
}

async fn a_completion_is_read_by_every_client_as_it_was_written(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    for _ in 0..2 {
        assert_eq!(writes(&a, &completion).await, WriteCompletion::Written);
        assert_eq!(reads(&b).await.as_ref(), Some(&completion));
    }
    assert_eq!(reads(&a.on_another_client(fixture).await).await, Some(completion));
}

async fn a_completion_outlasts_the_hold(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    writes(&a, &completion).await;
    a.releases().await;
    assert_eq!(reads(&b).await.as_ref(), Some(&completion));
    b.takes().await;
    b.releases().await;
    assert_eq!(reads(&a).await, Some(completion));
}

async fn a_completion_by_another_client_is_refused(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&b, HOUR, token).await;
    assert_eq!(writes(&b, &completion).await, WriteCompletion::NotHeld);
    assert_eq!(reads(&a).await, None);
    a.still_holds_with(token).await;
}

async fn a_completion_of_a_free_key_is_refused(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let completion = ending_in(&a, HOUR, FencingToken::new(7).expect("a token")).await;
    assert_eq!(writes(&a, &completion).await, WriteCompletion::NotHeld);
    assert_eq!(reads(&a).await, None);
    assert_eq!(a.inspects().await, None);
}

async fn a_completion_after_the_release_is_refused(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    a.releases().await;
    let completion = ending_in(&a, HOUR, token).await;
    assert_eq!(writes(&a, &completion).await, WriteCompletion::NotHeld);
    b.takes().await;
    assert_eq!(writes(&a, &completion).await, WriteCompletion::NotHeld);
    assert_eq!(reads(&b).await, None);
}

async fn a_completion_after_the_expiry_is_refused(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let a = a.for_ttl(SHORT);
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    fixture.let_leases_end(PAST_SHORT).await;
    assert_eq!(writes(&a, &completion).await, WriteCompletion::NotHeld);
    assert_eq!(reads(&a).await, None);
}

async fn a_completion_after_a_takeover_is_refused(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    let seen = a.seen().await;
    expect_known(b.backend.evict(&seen).await);
    b.takes().await;
    assert_eq!(writes(&a, &completion).await, WriteCompletion::NotHeld);
    assert_eq!(reads(&b).await, None);
}

async fn a_later_run_is_kept_until_the_later_end(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let first = ending_in(&a, 2 * HOUR, token).await;
    writes(&a, &first).await;
    a.releases().await;
    let token = b.takes().await;
    let mut second = ending_in(&b, HOUR, token).await;
    assert_eq!(writes(&b, &second).await, WriteCompletion::Written);
    second.until_micros = first.until_micros;
    assert_eq!(reads(&a).await, Some(second));
}

async fn a_completion_is_replaced_by_that_of_a_later_run(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let first = ending_in(&a, HOUR, token).await;
    writes(&a, &first).await;
    a.releases().await;
    let token = b.takes().await;
    let mut same_end = ending_in(&b, HOUR, token).await;
    same_end.until_micros = first.until_micros;
    writes(&b, &same_end).await;
    assert_eq!(reads(&a).await, Some(same_end));
    let later = ending_in(&b, 2 * HOUR, token).await;
    writes(&b, &later).await;
    assert_eq!(reads(&a).await.map(|read| read.until_micros), Some(later.until_micros));
}

async fn a_completion_belongs_to_one_key(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let other = a.with_new_key();
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    writes(&a, &completion).await;
    assert_eq!(reads(&other).await, None);
}

async fn a_completion_does_not_make_the_key_busy(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    writes(&a, &completion).await;
    a.releases().await;
    assert_eq!(b.inspects().await, None);
    assert_eq!(b.lists().await, None);
    assert!(matches!(b.tries().await, Acquire::Granted { tokens } if tokens.last() > token));
}

async fn a_completion_is_cleared_for_every_client(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    writes(&a, &completion).await;
    a.releases().await;
    assert_eq!(clears(&b, &completion).await, ClearCompletion::Cleared);
    assert_eq!(reads(&a).await, None);
    assert_eq!(clears(&b, &completion).await, ClearCompletion::Absent);
}

async fn a_completion_of_a_later_run_is_not_cleared(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let old = ending_in(&a, HOUR, token).await;
    writes(&a, &old).await;
    a.releases().await;
    let token = b.takes().await;
    let new = ending_in(&b, 2 * HOUR, token).await;
    writes(&b, &new).await;
    b.releases().await;
    assert_eq!(clears(&b, &old).await, ClearCompletion::Changed);
    assert_eq!(reads(&a).await, Some(new));
}

async fn a_completion_that_is_kept_longer_is_cleared(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let seen = ending_in(&a, HOUR, token).await;
    writes(&a, &seen).await;
    writes(&a, &ending_in(&a, 2 * HOUR, token).await).await;
    a.releases().await;
    assert_eq!(clears(&b, &seen).await, ClearCompletion::Cleared, "it is the same run");
    assert_eq!(reads(&a).await, None);
}

async fn confirming_a_completion_changes_nothing(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let token = a.takes().await;
    let completion = ending_in(&a, HOUR, token).await;
    writes(&a, &completion).await;
    let done = CountedSuccess::new(completion.clone(), completion.until_micros);
    expect_known(b.backend.confirm_completion(&b.key, &done).await);
    assert_eq!(reads(&a).await, Some(completion));
    a.still_holds_with(token).await;
}

async fn the_time_of_the_backend_passes(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let before = now(&a).await;
    fixture.let_time_pass(SHORT).await;
    let passed = now(&b).await.saturating_sub(before);
    assert!((290_000..60_000_000).contains(&passed), "{passed} us");
}

async fn a_restored_completion_never_replaces_that_of_a_later_run(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let node = fixture.backend().await;
    let token = |token| FencingToken::new(token).expect("a token");
    let (earlier, mut later) = (ending_in(&a, 2 * HOUR, token(7)).await, ending_in(&a, HOUR, token(8)).await);
    for completion in [&earlier, &later, &earlier] {
        expect_known(node.restore_completion(&a.key, completion).await);
    }
    later.until_micros = earlier.until_micros;
    assert_eq!(reads(&a).await, Some(later));
    assert_eq!(a.inspects().await, None, "it is no hold");
}

async fn a_missing_completion_is_refused_permanently(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    let token = a.takes().await;
    let refused = a.backend.read_completion(&a.key).await.expect_err("it stores none");
    assert!(refused.is_permanent() && refused.to_string().contains("completions"), "{refused}");
    let completion = Completion::new(1, token, 1, a.holder.owner.clone());
    a.backend.write_completion(&a.key, &a.holder.id, &completion).await.expect_err("it stores none");
    a.still_holds_with(token).await;
}
