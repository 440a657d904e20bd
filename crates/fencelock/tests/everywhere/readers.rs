//! Shared locks: readers together, writers alone.

use crate::backends::TestBackend;
use crate::facts::{GENEROUS, client, sure};
use fencelock::{Client, Error, FencingToken, Guard, Mode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Two clients; `None` if the backend has no shared locks, which it says at once.
async fn two(backend: &TestBackend, sharing: bool) -> Option<[Client; 2]> {
    let clients = [client(backend, sharing).await, client(backend, sharing).await];
    if clients[0].capabilities().modes.shared {
        return Some(clients);
    }
    let refused = clients[0].lock("k").shared().acquire().await.unwrap_err();
    assert!(matches!(refused, Error::ModeUnsupported { mode: Mode::Shared, .. }), "{refused}");
    None
}

async fn reads(client: &Client) -> Guard {
    timeout(GENEROUS, client.lock("k").shared().acquire()).await.expect("in time").unwrap()
}

async fn writes(client: &Client) -> Guard {
    timeout(GENEROUS, client.lock("k").acquire()).await.expect("in time").unwrap()
}

/// The writers and readers that are inside, and the tokens of the writers.
#[derive(Default)]
struct Inside {
    writers: AtomicUsize,
    readers: AtomicUsize,
    together: AtomicUsize,
    tokens: Mutex<Vec<FencingToken>>,
}

impl Inside {
    async fn write(&self, guard: Guard) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a writer overlaps a reader");
        self.tokens.lock().unwrap().push(guard.fencing_token());
        tokio::task::yield_now().await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader overlaps a writer");
        self.writers.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }

    async fn read(&self, guard: Guard) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst);
        self.together.fetch_max(readers + 1, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a reader overlaps a writer");
        sleep(Duration::from_millis(2)).await;
        self.readers.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
}

pub(crate) async fn readers_hold_together_and_writers_alone(backend: &TestBackend, sharing: bool) {
    let Some(clients) = two(backend, sharing).await else { return };
    let inside = Arc::<Inside>::default();
    // These two hold at the same time for certain.
    let both = [reads(&clients[0]).await, reads(&clients[1]).await];
    assert!(both.iter().all(|guard| guard.is_held() && guard.mode() == Mode::Shared));
    assert!(both[0].fencing_token() < both[1].fencing_token());
    for guard in both {
        for client in &clients {
            assert!(sure(|| client.lock("k").try_acquire()).await.is_none(), "a writer waits for the last reader");
            let waited = client.lock("k").wait(Duration::from_millis(20)).await;
            assert!(matches!(waited, Err(Error::Busy { .. } | Error::Unreachable { .. })), "{waited:?}");
        }
        guard.release().await.unwrap();
    }
    assert_eq!(writes(&clients[0]).await.mode(), Mode::Exclusive);
    let mut tasks = Vec::new();
    for number in 0..8 {
        let (client, inside) = (clients[number % 2].clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                if number < 6 {
                    inside.read(reads(&client).await).await;
                } else {
                    inside.write(writes(&client).await).await;
                }
            }
        }));
    }
    for task in tasks {
        timeout(GENEROUS, task).await.expect("served").unwrap();
    }
    let tokens = std::mem::take(&mut *inside.tokens.lock().unwrap());
    assert!(tokens.len() == 10 && tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    assert!(inside.together.load(Ordering::SeqCst) > 1, "readers never met");
    for client in clients {
        client.close(GENEROUS).await.unwrap();
    }
}

pub(crate) async fn a_downgraded_writer_lets_readers_in_and_no_writer(backend: &TestBackend, sharing: bool) {
    let Some([client, other]) = two(backend, sharing).await else { return };
    let writer = writes(&client).await;
    let exclusive = writer.fencing_token();
    let waiting = tokio::spawn(other.lock("k").shared().acquire());
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.fencing_token() > exclusive && reader.mode() == Mode::Shared);
    let joined = timeout(GENEROUS, waiting).await.expect("let in").unwrap().unwrap();
    assert!(joined.is_held() && reader.is_held());
    assert!(sure(|| other.lock("k").try_acquire()).await.is_none());
    joined.release().await.unwrap();
    reader.release().await.unwrap();
    assert!(writes(&other).await.fencing_token() > exclusive);
}
