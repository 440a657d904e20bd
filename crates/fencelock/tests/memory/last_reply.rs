//! A wait that ends without a reply names the holder of the last reply.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, Occupant};

/// Only these claims are answered.
fn freeze_after(scene: &Scene, answered: impl IntoIterator<Item = Fate>) {
    scene.net.next(Verb::Acquire, answered);
    scene.net.always(Verb::Acquire, Fate::Hang);
    scene.net.always(Verb::Inspect, Fate::Hang);
}

fn is_busy_with<T: std::fmt::Debug>(outcome: Result<T, Error>, key: &str, label: &str) {
    match outcome {
        Err(Error::Busy { key: busy, holders, .. }) if busy.as_str() == key => match holders.first() {
            Occupant::Holder(holder) => assert_eq!(holder.owner.label(), Some(label)),
            Occupant::Foreign(what) => panic!("{what}"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn several_keys_know_the_holder_that_their_first_try_found() {
    let scene = Scene::new();
    let _held = scene.neighbour().lock("b").label("payroll").await.unwrap();
    freeze_after(&scene, [Fate::Pass, Fate::Pass]);
    is_busy_with(scene.client.lock_all(["a", "b"]).wait(secs(2)).await, "b", "payroll");
}

#[tokio::test(start_paused = true)]
async fn several_keys_know_the_holder_of_any_of_them() {
    for answered in [[Fate::Hang, Fate::Pass], [Fate::Lost, Fate::Pass]] {
        let scene = Scene::new();
        let _held = scene.neighbour().lock("b").label("payroll").await.unwrap();
        freeze_after(&scene, answered);
        let before = scene.now();
        is_busy_with(scene.client.lock_all(["a", "b"]).wait(secs(2)).await, "b", "payroll");
        assert!(scene.now().since(before) < secs(2) + ms(200), "{:?}", scene.now().since(before));
    }
}

#[tokio::test(start_paused = true)]
async fn several_keys_forget_the_holder_of_a_key_that_they_got() {
    let scene = Scene::new();
    let held = scene.neighbour().lock("a").await.unwrap();
    // Both are tried, the first one is waited for and got, and the second one is never answered.
    scene.net.next(Verb::Acquire, [Fate::Pass, Fate::Lost, Fate::Pass]);
    let waiting = tokio::spawn(scene.client.lock_all(["a", "b"]).wait(secs(2)).acquire());
    scene.pass(ms(10)).await;
    scene.net.always(Verb::Acquire, Fate::Hang);
    held.release().await.unwrap();
    let outcome = waiting.await.unwrap();
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn slots_know_the_holder_that_their_first_pass_found() {
    let scene = Scene::new();
    let neighbour = scene.neighbour();
    let (_one, _two) =
        (neighbour.slots("k", 2).acquire().await.unwrap(), neighbour.slots("k", 2).acquire().await.unwrap());
    freeze_after(&scene, [Fate::Pass, Fate::Pass]);
    let outcome = scene.client.slots("k", 2).wait(secs(2)).acquire().await;
    assert!(matches!(outcome, Err(Error::Busy { .. })), "{outcome:?}");
}
