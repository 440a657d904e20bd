//! Tasks of one client pass permits on.

use crate::common::{Scene, Verb, ms, secs};
use crate::sharing::all;
use fencelock::{Client, Error, FencingToken, Guard, Released};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
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

/// A task that waits so long for one of two permits.
fn waiting(client: &Client, wait: Duration) -> JoinHandle<Result<Guard, Error>> {
    let semaphore = client.semaphore("k", 2).wait(wait);
    tokio::spawn(async move { semaphore.acquire(1).await })
}

/// One of two permits under a lease that can be passed on, and the other one of another client.
async fn beside_another(scene: &Scene) -> (Guard, Guard) {
    let semaphore = scene.client.semaphore("k", 2);
    // The first lease of a key has one token.
    let first = semaphore.acquire(1).await.unwrap();
    scene.pass(ms(1)).await;
    let second = semaphore.acquire(1).await.unwrap();
    first.release().await.unwrap();
    let other = scene.neighbour().semaphore("k", 2).acquire(1).await.unwrap();
    scene.pass(ms(1)).await;
    (second, other)
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

#[tokio::test(start_paused = true)]
async fn a_claim_for_all_permits_waits_for_one_batch_of_another_client() {
    let scene = Scene::new();
    let [a, b] = [0; 2].map(|_| scene.another(|settings| settings.batch(8, secs(1))));
    let log = Log::default();
    let tasks = line_up(&a, 'a', 400, 1, &log).await;
    scene.pass(ms(20)).await;
    let before = log.lock().unwrap().len();
    let large = line_up(&b, 'b', 1, 4, &log).await;
    all(large).await;
    let grants = log.lock().unwrap().iter().position(|entry| entry.0 == 'b').unwrap() - before;
    // Of each lease: the batch, and what passes until the question is answered.
    assert!(grants <= 4 * (8 + 6), "{grants} grants");
    all(tasks).await;
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_although_the_claim_of_its_task_was_granted_to_another() {
    let scene = Scene::new();
    let (mine, other) = beside_another(&scene).await;
    let begun = scene.now();
    let tasks = [0; 3].map(|_| waiting(&scene.client, ms(300)));
    scene.pass(ms(1)).await;
    let claims = scene.net.calls(Verb::Acquire);
    // The first task gets this one; its claim goes to the last task.
    mine.release().await.unwrap();
    scene.pass(ms(1)).await;
    other.release().await.unwrap();
    let [first, second, last] = tasks;
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert!(scene.now().since(begun) < ms(10), "the claim was granted at once");
    assert_eq!(scene.net.calls(Verb::Acquire), claims, "the claim was not sent again");
    let refused = last.await.unwrap().unwrap_err();
    assert!(refused.is_busy(), "{refused}");
    assert!(scene.now().since(begun) < ms(400));
    first.release().await.unwrap();
    second.release().await.unwrap();
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_leaves_its_claim_to_another_one_and_the_last_one_leaves_nothing() {
    let scene = Scene::new();
    let (mine, other) = beside_another(&scene).await;
    let tasks = [0; 3].map(|_| waiting(&scene.client, secs(60)));
    scene.pass(ms(1)).await;
    let waiters = |scene: Arc<Scene>| async move { scene.holding("k").await.unwrap().waiters };
    let scene = Arc::new(scene);
    assert_eq!(waiters(Arc::clone(&scene)).await, 1, "as many as there can be permits");
    for (left, task) in tasks.into_iter().enumerate() {
        task.abort();
        scene.pass(ms(20)).await;
        assert_eq!(waiters(Arc::clone(&scene)).await, u32::from(left < 2));
    }
    mine.release().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_task_alone_claims_and_releases_each_time() {
    let scene = Scene::new();
    for _ in 0..10 {
        scene.client.semaphore("k", 4).acquire(1).await.unwrap().release().await.unwrap();
    }
    assert_eq!((scene.net.calls(Verb::Acquire), scene.net.calls(Verb::Release)), (10, 10));
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_share_claims_each_permit() {
    let scene = Scene::new();
    let alone = scene.another(|settings| settings.sharing(false));
    let log = Log::default();
    let tasks = line_up(&alone, 'a', 50, 1, &log).await;
    assert_eq!(scene.holding("k").await.unwrap().waiters, 46);
    all(tasks).await;
    let tokens: Vec<_> = log.lock().unwrap().iter().map(|entry| entry.2).collect();
    assert!(tokens.is_sorted(), "in the order of the grants");
}
