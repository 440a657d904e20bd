//! While another client waits, the tasks of one client get a bounded batch of grants, and every waiter gets the key.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, HolderId};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

const GRANTS: u32 = 6;
const HOLD: Duration = Duration::from_millis(3);
/// Turns of the other client.
const TURNS: usize = 8;

/// Who had the key, in order; `None` is the other client.
type Log = Arc<Mutex<Vec<Option<HolderId>>>>;

/// Tasks that never stop.
struct Crowd(Vec<JoinHandle<()>>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

fn crowd(client: &Client, log: &Log) -> Crowd {
    let tasks = (0..6).map(|_| {
        let (client, log) = (client.clone(), Arc::clone(log));
        tokio::spawn(async move {
            loop {
                let guard = client.lock("k").await.unwrap();
                log.lock().unwrap().push(Some(guard.holder()));
                tokio::time::sleep(HOLD).await;
                guard.release().await.unwrap();
            }
        })
    });
    Crowd(tasks.collect())
}

/// Without a queue and with one claim per task, the first claim gets the key, and there is no bound.
fn is_bounded(client: &Client, sharing: bool) -> bool {
    sharing || client.capabilities().queues
}

/// Another client takes the key some times while a crowd does so without end. Who had it, from its first turn on.
async fn turns(backend: &TestBackend, crowded: Client) -> Vec<Option<HolderId>> {
    let log = Log::default();
    let crowd = crowd(&crowded, &log);
    let other = client(backend, true).await;
    for _ in 0..=TURNS {
        let guard = tokio::time::timeout(GENEROUS, other.lock("k").acquire()).await.expect("its turn").unwrap();
        log.lock().unwrap().push(None);
        guard.release().await.unwrap();
    }
    drop(crowd);
    let log = std::mem::take(&mut *log.lock().unwrap());
    let first = log.iter().position(Option::is_none).unwrap();
    log.into_iter().skip(first).collect()
}

/// Grants under one lease, at most.
fn longest_lease(log: &[Option<HolderId>]) -> usize {
    let leases = log.chunk_by(|one, other| one == other).filter(|lease| lease[0].is_some());
    leases.map(<[_]>::len).max().unwrap_or_default()
}

fn check(log: &[Option<HolderId>], most: usize, client: &Client, sharing: bool) {
    let capabilities = client.capabilities();
    let grants = log.iter().filter(|who| who.is_some()).count();
    if !sharing {
        assert!(longest_lease(log) <= 1, "{log:?}");
    } else if capabilities.queues {
        // The client checks every 5 ms whether another one waits. Until the reply, it serves one or two more holds, and some more
        // on a busy machine.
        assert!(grants <= TURNS * (most + 60), "{grants} for {TURNS} turns of the other");
    } else {
        assert!(longest_lease(log) <= most, "{log:?}");
    }
}

pub(crate) async fn another_client_comes_after_a_batch_of_grants(backend: &TestBackend, sharing: bool) {
    let client = backend.client(Client::builder().sharing(sharing).batch(GRANTS, GENEROUS)).await;
    if !is_bounded(&client, sharing) {
        return;
    }
    let log = turns(backend, client.clone()).await;
    // The one that claimed, and the batch.
    check(&log, 1 + GRANTS as usize, &client, sharing);
}

/// Each hold lasts a known time at least, so only so many begin within the span.
pub(crate) async fn another_client_comes_after_a_batch_of_time(backend: &TestBackend, sharing: bool) {
    let span = HOLD * 5;
    let client = backend.client(Client::builder().sharing(sharing).batch(u32::MAX, span)).await;
    if !is_bounded(&client, sharing) {
        return;
    }
    let log = turns(backend, client.clone()).await;
    check(&log, 1 + 5, &client, sharing);
}

/// Programs that neither wait in the queue nor are woken. Where each task claims for itself and the server has a queue, they come
/// after that line, as documented.
pub(crate) async fn a_client_that_polls_gets_the_key(backend: &TestBackend, sharing: bool) {
    if !sharing {
        return;
    }
    let crowded =
        backend.client(Client::builder().yield_interval(Duration::from_millis(100), Duration::from_millis(20))).await;
    let log = Log::default();
    let crowd = crowd(&crowded, &log);
    let stranger = client(backend, false).await;
    let claims = async {
        for _ in 0..3 {
            while sure(|| stranger.lock("k").try_acquire()).await.is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    assert!(tokio::time::timeout(GENEROUS, claims).await.is_ok(), "after {} grants", log.lock().unwrap().len());
    drop(crowd);
}
