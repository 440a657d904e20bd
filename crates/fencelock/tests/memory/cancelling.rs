//! A wait that is given up at any moment leaves no key and no position in the queue.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Client, Guard};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// Polls a future a number of times while time advances, and drops it. `Some` if it was ready before.
pub(crate) async fn polled<T>(polls: usize, mut future: Pin<Box<dyn Future<Output = T> + Send>>) -> Option<T> {
    for _ in 0..polls {
        let once = std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(done) = once.await {
            return Some(done);
        }
        tokio::time::sleep(ms(1)).await;
    }
    None
}

/// Cancels a wait after 0, 1, 2, ... polls, until it completes. Checks each time that nothing is left.
async fn at_every_await_point(
    prepare: impl AsyncFn(&Scene) -> Option<Guard>,
    lock_of: impl Fn(&Client) -> fencelock::Lock,
) {
    for polls in 0..2000 {
        let scene = Scene::new();
        let other = prepare(&scene).await;
        let done = polled(polls, Box::pin(lock_of(&scene.client).acquire())).await;
        let over = done.is_some();
        drop(done);
        scene.net.always(Verb::Release, Fate::Pass);
        scene.pass(secs(4)).await;
        if let Some(other) = other {
            assert_eq!(scene.holding("k").await.unwrap().waiters, 0, "in the queue, given up after {polls} polls");
            other.release().await.unwrap();
        }
        assert_eq!(scene.holding("k").await, None, "held, given up after {polls} polls");
        scene.client.close(secs(1)).await.unwrap();
        if over {
            assert!(polls > 1, "there were await points: {polls}");
            return;
        }
    }
    panic!("it never ended");
}

#[tokio::test(start_paused = true)]
async fn waiting_in_the_queue_until_the_wait_is_over() {
    at_every_await_point(
        async |scene| {
            let other = scene.neighbour().lock("k").await.unwrap();
            scene.net.always(Verb::Acquire, Fate::Slow(ms(10)));
            scene.net.always(Verb::Release, Fate::Slow(ms(10)));
            Some(other)
        },
        |client| client.lock("k").wait(ms(60)),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_while_every_other_reply_is_lost() {
    at_every_await_point(
        async |scene| {
            scene.net.next(Verb::Acquire, [Fate::Mute, Fate::Slow(ms(5)), Fate::Lost, Fate::Slow(ms(5))]);
            scene.net.next(Verb::Release, [Fate::Mute, Fate::Lost]);
            None
        },
        |client| client.lock("k"),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_given_up_while_the_lock_is_on_its_way_to_it_passes_it_on() {
    let scene = Scene::new();
    let first = scene.neighbour().lock("k").ttl(secs(30)).await.unwrap();
    let second = tokio::spawn(scene.client.lock("k").acquire());
    scene.pass(ms(10)).await;
    let third = tokio::spawn(scene.neighbour().lock("k").acquire());
    scene.pass(ms(10)).await;
    // Its next poll hangs, and is carried out.
    scene.net.always(Verb::Acquire, Fate::HangAfter);
    scene.pass(secs(2)).await;
    second.abort();
    first.release().await.unwrap();
    let before = scene.now();
    let third = third.await.unwrap().unwrap();
    assert!(third.is_held());
    assert!(scene.now().since(before) < secs(1), "{:?}", scene.now().since(before));
}
