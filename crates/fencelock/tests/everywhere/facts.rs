use crate::backends::TestBackend;
use fencelock::{Client, Error, Eviction, FencingToken, Guard, Holding, LossReason};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};

/// For machines that are slow; nothing takes so long.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

pub(crate) async fn client(backend: &TestBackend, sharing: bool) -> Client {
    backend.client(Client::builder().sharing(sharing)).await
}

async fn two(backend: &TestBackend, sharing: bool) -> [Client; 2] {
    [client(backend, sharing).await, client(backend, sharing).await]
}

/// What comes of a question that must be answered some time. On a quorum each node has a time limit of its own, which a busy
/// machine may miss.
pub(crate) async fn sure<T>(request: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..600 {
        match request().await {
            Ok(answer) => return answer,
            Err(Error::Unreachable { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error:#}"),
        }
    }
    panic!("never answered");
}

/// Takes the key when it is free, which it is by now or soon.
async fn takes(client: &Client) -> Guard {
    let taken = async {
        loop {
            if let Some(guard) = sure(|| client.lock("k").try_acquire()).await {
                return guard;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(GENEROUS, taken).await.expect("free")
}

async fn seen(client: &Client) -> Option<Holding> {
    loop {
        match client.inspect("k").await {
            Ok(seen) => return seen,
            // The test itself has a timeout, and this is called by tasks that wait for nothing else.
            Err(Error::Unreachable { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error:#}"),
        }
    }
}

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        tokio::time::timeout(GENEROUS, task).await.expect("served").unwrap();
    }
}

pub(crate) async fn tasks_of_two_clients_exclude_each_other(backend: &TestBackend, sharing: bool) {
    let clients = two(backend, sharing).await;
    let inside = Arc::new(AtomicBool::new(false));
    let tokens: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    let mut tasks = Vec::new();
    for client in clients.iter().cycle().take(8) {
        let (client, inside, tokens) = (client.clone(), Arc::clone(&inside), Arc::clone(&tokens));
        tasks.push(tokio::spawn(async move {
            for round in 0..10 {
                let guard = client.lock("k").await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                tokens.lock().unwrap().push(guard.fencing_token());
                yield_now().await;
                inside.store(false, Ordering::SeqCst);
                if round % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    all(tasks).await;
    let tokens = std::mem::take(&mut *tokens.lock().unwrap());
    assert_eq!(tokens.len(), 80);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    for client in clients {
        client.close(GENEROUS).await.unwrap();
    }
}

pub(crate) async fn tasks_of_a_client_are_served_in_order(backend: &TestBackend, sharing: bool) {
    let client = client(backend, sharing).await;
    if !sharing && !client.capabilities().queues {
        // The backend and the client have no queue: the first claim gets the key.
        return;
    }
    let held = client.lock("k").await.unwrap();
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..20 {
        let (lock, order) = (client.lock("k"), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        // Its claim is sent before the next one; one connection keeps this order.
        yield_now().await;
    }
    held.release().await.unwrap();
    all(tasks).await;
    assert!(order.lock().unwrap().iter().copied().eq(0..20), "{order:?}");
}

pub(crate) async fn a_client_reports_how_many_of_its_tasks_wait(backend: &TestBackend, sharing: bool) {
    let [client, other] = two(backend, sharing).await;
    let held = other.lock("k").await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let lock = client.lock("k");
        tasks.push(tokio::spawn(async move {
            lock.await.unwrap().release().await.unwrap();
        }));
    }
    let wait_for = async |many: usize| {
        let reached = async {
            while client.waiting("k") != many {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(tokio::time::timeout(GENEROUS, reached).await.is_ok(), "{many}, not {}", client.waiting("k"));
    };
    wait_for(5).await;
    assert_eq!((other.waiting("k"), client.waiting("another"), client.waiting("")), (0, 0, 0));
    tasks.remove(2).abort();
    wait_for(4).await;
    if client.capabilities().queues {
        let at_the_server = if sharing { 1 } else { 4 };
        let counted = async {
            while seen(&other).await.expect("held").waiters != at_the_server {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(tokio::time::timeout(GENEROUS, counted).await.is_ok());
    }
    held.release().await.unwrap();
    all(tasks).await;
    wait_for(0).await;
}

pub(crate) async fn a_task_that_gives_up_leaves_nothing(backend: &TestBackend, sharing: bool) {
    let clients = two(backend, sharing).await;
    let held = clients[0].lock("k").await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..12 {
        waiting.push(tokio::spawn(clients[number % 2].lock("k").acquire()));
        yield_now().await;
    }
    let last = waiting.pop().unwrap();
    for (number, task) in waiting.into_iter().enumerate() {
        task.abort();
        if number % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    held.release().await.unwrap();
    let last = tokio::time::timeout(GENEROUS, last).await.expect("the only one that stayed").unwrap().unwrap();
    last.release().await.unwrap();
    for client in clients {
        client.close(GENEROUS).await.unwrap();
    }
    let probe = client(backend, sharing).await;
    assert_eq!(seen(&probe).await, None);
    drop(takes(&probe).await);
}

pub(crate) async fn a_loss_is_reported_and_the_next_task_is_served(backend: &TestBackend, sharing: bool) {
    let [client, other] = two(backend, sharing).await;
    let held = client.lock("k").ttl(Duration::from_secs(10)).await.unwrap();
    let waiting = tokio::spawn(client.lock("k").ttl(Duration::from_secs(10)).acquire());
    yield_now().await;
    let seen = seen(&other).await.expect("held");
    if !client.capabilities().evicts {
        assert!(matches!(sure(|| other.evict(&seen)).await, Eviction::Refused(_)));
        held.release().await.unwrap();
        assert!(tokio::time::timeout(GENEROUS, waiting).await.expect("served").unwrap().unwrap().is_held());
        return;
    }
    // A lost reply is requested again, and the operation is then already done.
    assert!(matches!(sure(|| other.evict(&seen)).await, Eviction::Evicted | Eviction::Changed(_)));
    let why = tokio::time::timeout(GENEROUS, held.lost()).await.expect("a notification");
    // Notified by an event or by its own renewal, depending on the events of the backend, and on which is faster.
    assert!(matches!(why, LossReason::Deleted | LossReason::TakenBy(_) | LossReason::Expired), "{why}");
    let next = tokio::time::timeout(GENEROUS, waiting).await.expect("served").unwrap().unwrap();
    assert!(next.fencing_token() > held.fencing_token());
    assert!(held.release().await.unwrap_err().is_lost());
}
