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
