//! Numbered slots, on every kind of backend.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, SlotGuard, Slots};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

fn pool(client: &Client) -> Slots {
    client.slots("pool", 3)
}

/// A slot, however often the backend does not reply.
async fn takes(slots: &Slots) -> SlotGuard {
    for _ in 0..600 {
        match timeout(GENEROUS, slots.clone().acquire()).await.expect("served") {
            Ok(guard) => return guard,
            Err(Error::Unreachable { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error:#}"),
        }
    }
    panic!("never answered");
}

async fn nothing_is_held(client: &Client) {
    for slot in 0..3 {
        let free = async {
            while sure(async || client.inspect(format!("pool#{slot}")).await).await.is_some() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(timeout(GENEROUS, free).await.is_ok(), "slot {slot} is free");
    }
}

pub(crate) async fn a_slot_has_one_holder_and_tokens_of_its_own(backend: &TestBackend, sharing: bool) {
    let clients = [client(backend, sharing).await, client(backend, sharing).await];
    let held: Arc<Mutex<HashMap<u32, u64>>> = Arc::default();
    let last: Arc<Mutex<HashMap<u32, u64>>> = Arc::default();
    let mut tasks = Vec::new();
    for client in clients.iter().cycle().take(8) {
        let (slots, held, last) = (pool(client), Arc::clone(&held), Arc::clone(&last));
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = takes(&slots).await;
                let (slot, token) = (guard.slot(), guard.fencing_token().get());
                assert_eq!(guard.key().as_str(), format!("pool#{slot}"));
                assert!(held.lock().unwrap().insert(slot, token).is_none(), "two hold slot {slot}");
                assert!(last.lock().unwrap().insert(slot, token).is_none_or(|last| last < token), "slot {slot}");
                tokio::task::yield_now().await;
                held.lock().unwrap().remove(&slot);
                let _ = guard.release().await;
            }
        }));
    }
    for task in tasks {
        timeout(GENEROUS, task).await.expect("served").unwrap();
    }
    assert!(last.lock().unwrap().keys().all(|slot| *slot < 3));
    nothing_is_held(&clients[0]).await;
}

pub(crate) async fn a_full_set_is_busy_and_a_wait_that_is_given_up_leaves_nothing(
    backend: &TestBackend,
    sharing: bool,
) {
    let (client, other) = (client(backend, sharing).await, client(backend, sharing).await);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(takes(&pool(&client)).await);
    }
    assert!(sure(async || pool(&other).try_acquire().await).await.is_none());
    let waited = pool(&other).wait(Duration::from_millis(100)).acquire().await.map(|guard| guard.slot());
    assert!(matches!(waited, Err(Error::Busy { .. } | Error::Unreachable { .. })), "{waited:?}");
    let waiting: Vec<_> = (0..4).map(|_| tokio::spawn(pool(&other).acquire())).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    let next = tokio::spawn(pool(&other).acquire());
    let freed = held.swap_remove(1);
    let slot = freed.slot();
    freed.release().await.unwrap();
    let next = timeout(GENEROUS, next).await.expect("served").unwrap().unwrap();
    assert_eq!(next.slot(), slot, "the others are held");
    drop((held, next));
    nothing_is_held(&client).await;
}

pub(crate) async fn a_slot_goes_on_in_another_client(backend: &TestBackend, sharing: bool) {
    let (client, other) = (client(backend, sharing).await, client(backend, sharing).await);
    if !client.capabilities().portable {
        return;
    }
    let guard = takes(&pool(&client)).await;
    let slot = guard.slot();
    let holder = guard.into_holder();
    let wrong = pool(&other).resume(3, holder).await.unwrap_err();
    assert!(wrong.is_config() && wrong.to_string().contains("no slot 3: the slots are 0 to 2"), "{wrong}");
    let resumed = sure(|| pool(&other).resume(slot, holder)).await;
    assert!(resumed.is_held() && resumed.slot() == slot);
    resumed.release().await.unwrap();
    nothing_is_held(&client).await;
}
