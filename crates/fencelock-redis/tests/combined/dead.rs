//! A connection that drops everything, while other requests are made that are not sent: their batches are too large.

use super::{claim, is_granted};
use fencelock::backends::connect;
use fencelock_core::{Intent, Release};
use fencelock_testkit::{Proxy, redis_or_skip};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// More than half of the requests for which a connection has room.
const WAITERS: usize = 3000;
/// Without its detection, the connection is used for ever. With it, this takes little more than a second.
const DETECTED: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_not_sent_do_not_keep_a_dead_connection() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let backend = connect(&proxy.url()).await.unwrap();
    let first = claim("first");
    assert!(is_granted(&backend.acquire(&first).await.answer.unwrap()));
    assert_eq!(backend.release(&first.key, &first.holder.id).await.unwrap(), Release::Released);
    proxy.black_hole_open();
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in 0..WAITERS {
        let (backend, answered) = (Arc::clone(&backend), answered.clone());
        tasks.spawn(async move {
            let poll = claim(&format!("w:{number}")).with_intent(Intent::Poll);
            while backend.acquire(&poll).await.answer.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
            let _ = answered.send(());
        });
    }
    // New claims are combined, unless the connection has too many requests.
    tasks.spawn(async move {
        let mut claims = JoinSet::new();
        for number in 0.. {
            let backend = Arc::clone(&backend);
            claims.spawn(async move { backend.acquire(&claim(&format!("n:{number}"))).await.answer.is_ok() });
            sleep(Duration::from_millis(20)).await;
        }
    });
    timeout(DETECTED, answers.recv()).await.expect("the dead connection is replaced");
    tasks.shutdown().await;
}
