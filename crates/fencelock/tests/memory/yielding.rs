//! Clients that only poll are invisible to the server, and still get the key.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Client, Drift, Error, FencingToken};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

type Log = Arc<Mutex<Vec<FencingToken>>>;

/// Tasks of one client that take `k` again and again.
fn hammer(client: &Client, tasks: usize, hold: Duration) -> (Vec<JoinHandle<()>>, Log) {
    let log = Log::default();
    let hammering = (0..tasks).map(|task| {
        let (client, log) = (client.clone(), Arc::clone(&log));
        tokio::spawn(async move {
            loop {
                let guard = client.lock("k").await.unwrap();
                log.lock().unwrap().push(guard.fencing_token());
                tokio::time::sleep(hold + Duration::from_micros(task as u64)).await;
                guard.release().await.unwrap();
            }
        })
    });
    (hammering.collect(), log)
}

/// Polls at intervals, outside the queue, until it has the key, with a limit. Returns the time that it took.
async fn stranger(scene: &Scene, every: Duration) -> Duration {
    let began = scene.now();
    let client = scene.neighbour();
    while scene.now().since(began) < secs(2) {
        if let Some(guard) = client.lock("k").try_acquire().await.unwrap() {
            guard.release().await.unwrap();
            break;
        }
        tokio::time::sleep(every).await;
    }
    scene.now().since(began)
}

fn stop(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_polls_every_few_milliseconds_gets_the_key_in_a_second() {
    let scene = Scene::new();
    let (tasks, log) = hammer(&scene.client, 8, ms(1));
    scene.pass(ms(100)).await;
    for turn in 0..10 {
        let waited = stranger(&scene, ms(10)).await;
        assert!(waited <= ms(1100), "turn {turn} came after {waited:?}");
    }
    stop(tasks);
    let log = log.lock().unwrap();
    assert!(log.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(scene.net.calls(Verb::Acquire) < log.len() / 20, "the lease was shared");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_far_away_is_left_free_as_soon() {
    let scene = Scene::new();
    // From one lease to the next it takes longer than a pause, and a lease is used up before the stretch is over.
    for verb in [Verb::Acquire, Verb::Release] {
        scene.net.always(verb, Fate::Slow(ms(30)));
    }
    let client = Client::builder()
        .clock(Arc::new(scene.clock), Drift::default())
        .yield_interval(ms(900), ms(20))
        .backend(Arc::clone(&scene.net) as _)
        .unwrap();
    let (tasks, _) = hammer(&client, 8, ms(1));
    scene.pass(ms(100)).await;
    let waited = stranger(&scene, ms(10)).await;
    assert!(waited <= ms(900 + 20 + 100), "{waited:?}");
    stop(tasks);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_also_in_a_pause() {
    let scene = Scene::new();
    let client = scene.another(|settings| settings.yield_interval(ms(1), secs(60)));
    let held = client.lock("k").await.unwrap();
    let second = tokio::spawn(client.lock("k").acquire());
    let third = tokio::spawn(client.lock("k").acquire());
    let last = tokio::spawn(client.lock("k").wait(secs(1)).acquire());
    scene.pass(ms(1)).await;
    held.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    second.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    scene.pass(ms(10)).await;
    third.release().await.unwrap();
    // The pause lasts longer than the wait. The last poll is at the end of the wait, and may get the key.
    let end = tokio::time::timeout(secs(2), last).await.expect("in time").unwrap();
    assert!(matches!(end, Ok(_) | Err(Error::Busy { .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_queued_waiter_is_served_without_a_pause() {
    let scene = Scene::new();
    let client = scene.another(|settings| settings.yield_interval(ms(100), secs(60)).batch(4, ms(5)));
    let (tasks, log) = hammer(&client, 4, ms(1));
    let other = scene.neighbour();
    let (others, theirs) = hammer(&other, 1, ms(1));
    scene.pass(secs(2)).await;
    stop(tasks);
    stop(others);
    let (mine, theirs) = (log.lock().unwrap().len(), theirs.lock().unwrap().len());
    assert!(mine > 400 && theirs > 80, "{mine} and {theirs}");
}
