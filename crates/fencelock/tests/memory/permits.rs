//! Tasks of one client pass permits on.

use crate::common::{Scene, Verb, ms};
use crate::sharing::all;
use fencelock::{Client, FencingToken, Released};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

type Log = Arc<Mutex<Vec<(char, usize, FencingToken)>>>;

/// Starts tasks of a client that want some of four permits, hold them for a while, and record their number and token.
async fn line_up(client: &Client, who: char, tasks: usize, weight: u32, log: &Log) -> Vec<JoinHandle<()>> {
    let mut waiting = Vec::new();
    for number in 0..tasks {
        let (semaphore, log) = (client.semaphore("k", 4), Arc::clone(log));
        waiting.push(tokio::spawn(async move {
            let guard = semaphore.acquire(weight).await.unwrap();
            log.lock().unwrap().push((who, number, guard.fencing_token()));
            tokio::time::sleep(ms(1)).await;
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }));
        tokio::task::yield_now().await;
    }
    waiting
}

#[tokio::test(start_paused = true)]
async fn many_tasks_need_few_claims_and_are_served_in_order_with_tokens_of_their_own() {
    let scene = Scene::new();
    let log = Log::default();
    let held = scene.client.semaphore("k", 4).acquire(4).await.unwrap();
    let tasks = line_up(&scene.client, 'a', 1000, 1, &log).await;
    scene.pass(ms(10)).await;
    held.release().await.unwrap();
    all(tasks).await;
    let log = std::mem::take(&mut *log.lock().unwrap());
    assert!(log.iter().map(|entry| entry.1).eq(0..1000), "first come, first served");
    assert_eq!(log.iter().map(|entry| entry.2).collect::<BTreeSet<_>>().len(), 1000, "a token twice");
    let claims = scene.net.calls(Verb::Acquire);
    assert!(claims < 40, "{claims} claims for a thousand grants");
    assert_eq!(scene.holding("k").await, None);
}
