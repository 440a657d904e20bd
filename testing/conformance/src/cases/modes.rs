//! A claim in a mode that the backend lacks is refused and changes nothing.

use crate::Fixture;
use crate::case::{Case, Need, case_for, modes};
use crate::test_client::{TestClient, test_clients};
use fencelock_core::{Intent, Mode, Unknown};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::LacksModes], a_claim_in_a_mode_that_is_missing_is_refused_by_name),
        case_for(&[Need::LacksModes], a_claim_in_a_mode_that_is_missing_changes_nothing),
        case_for(&[Need::LacksModes], a_claim_in_a_mode_that_is_missing_does_not_disturb_the_holder),
    ]
}

async fn refusal(client: &TestClient, mode: Mode, intent: Intent) -> Unknown {
    match client.backend.acquire(&client.claim(intent).with_mode(mode)).await.answer {
        Err(refusal) => refusal,
        Ok(answer) => panic!("{mode} should be refused: {answer:?}"),
    }
}

fn missing(client: &TestClient) -> impl Iterator<Item = Mode> {
    let has = client.backend.capabilities().modes;
    modes().into_iter().filter(move |mode| !has.has(*mode))
}

async fn a_claim_in_a_mode_that_is_missing_is_refused_by_name(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    for mode in missing(&a) {
        for intent in [Intent::Try, Intent::Enqueue, Intent::Poll] {
            let refusal = refusal(&a, mode, intent).await;
            assert_eq!(refusal.unsupported_mode(), Some(mode), "{refusal}");
            assert!(refusal.is_permanent() && refusal.changed_nothing(), "{refusal}");
            let text = refusal.to_string();
            for part in [mode.to_string(), a.backend.name(), mode.alternative().to_owned()] {
                assert!(text.contains(&part), "{text:?} should name {part:?}");
            }
        }
    }
}

async fn a_claim_in_a_mode_that_is_missing_changes_nothing(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    for mode in missing(&a) {
        refusal(&a, mode, Intent::Enqueue).await;
    }
    assert_eq!(b.inspects().await, None);
    b.takes().await;
    assert_eq!(b.seen().await.waiters, 0);
}

async fn a_claim_in_a_mode_that_is_missing_does_not_disturb_the_holder(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    let fence = a.takes().await;
    for mode in missing(&a) {
        refusal(&b, mode, Intent::Enqueue).await;
        refusal(&a, mode, Intent::Poll).await;
    }
    a.still_holds_with(fence).await;
    assert_eq!(a.seen().await.waiters, 0);
}
