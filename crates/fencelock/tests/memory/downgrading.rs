//! A writer that becomes a reader: it writes no more from the moment of its request, and loses nothing because of a reply.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, LossReason, Mode};

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_requested_again_and_the_token_is_the_same() {
    for fate in [Fate::Mute, Fate::Lost, Fate::HangAfter, Fate::Hang] {
        let scene = Scene::new();
        let writer = scene.client.lock("k").ttl(secs(9)).await.unwrap();
        scene.net.next(Verb::Downgrade, [fate, fate]);
        let reader = writer.downgrade().await.unwrap();
        assert_eq!(scene.holding("k").await.unwrap().first().fence, Some(reader.fencing_token()), "{fate:?}");
        assert_eq!(scene.net.calls(Verb::Downgrade), 3);
        scene.pass(secs(30)).await;
        assert!(reader.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_without_a_reply_stops_writing_while_it_retries() {
    let scene = Scene::new();
    let writer = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    let held = writer.held();
    scene.net.always(Verb::Downgrade, Fate::Mute);
    let downgrading = tokio::spawn(writer.downgrade());
    scene.pass(ms(1)).await;
    assert!(!held.is_held(), "others may read since the request was sent");
    let other = scene.neighbour().lock("k").shared().try_acquire().await.unwrap();
    assert!(other.is_some(), "and they do");
    scene.net.always(Verb::Downgrade, Fate::Pass);
    assert_eq!(downgrading.await.unwrap().unwrap().mode(), Mode::Shared);
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_ends_with_the_lease() {
    let scene = Scene::new();
    let writer = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    let deadline = scene.deadline(secs(9));
    scene.net.always(Verb::Downgrade, Fate::Lost);
    scene.net.always(Verb::Renew, Fate::Lost);
    let lost = writer.downgrade().await.unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LossReason::Expired, .. }), "{lost}");
    assert!(scene.now() >= deadline && scene.now() < deadline + secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_does_not_lengthen_the_lease() {
    let scene = Scene::new();
    let writer = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    let holder = {
        let asked = scene.now();
        scene.net.next(Verb::Downgrade, [Fate::Slow(ms(800))]);
        let reader = writer.downgrade().await.unwrap();
        assert!(scene.now() >= asked + ms(1600) && scene.now() + reader.remaining() <= asked + secs(9));
        reader.into_holder()
    };
    let asked = scene.now();
    scene.net.next(Verb::Acquire, [Fate::Slow(ms(800))]);
    let resumed = scene.client.lock("k").shared().ttl(secs(9)).resume(holder).await.unwrap();
    assert!(scene.now() >= asked + ms(1600) && scene.now() + resumed.remaining() <= asked + secs(9));
    let holder = resumed.into_holder();
    scene.net.next(Verb::Acquire, [Fate::Slow(ms(600))]);
    let lapsed = scene.client.lock("k").shared().ttl(secs(1)).resume(holder).await.unwrap_err();
    assert!(matches!(lapsed, Error::Lost { reason: LossReason::Expired, .. }), "{lapsed}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_downgrade_releases_the_lock() {
    for fate in [Fate::Hang, Fate::HangAfter] {
        let scene = Scene::new();
        let writer = scene.client.lock("k").await.unwrap();
        scene.net.next(Verb::Downgrade, [fate]);
        let downgrading = tokio::spawn(writer.downgrade());
        scene.pass(ms(50)).await;
        downgrading.abort();
        scene.pass(secs(1)).await;
        assert_eq!(scene.holding("k").await, None, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_exclusive_lock_is_downgraded() {
    let scene = Scene::new();
    let reader = scene.client.lock("k").shared().await.unwrap();
    let token = reader.fencing_token();
    let same = reader.downgrade().await.unwrap();
    assert_eq!(same.fencing_token(), token, "a shared lock stays as it is");
    let permits = scene.client.semaphore("s", 3).acquire(2).await.unwrap();
    let refused = permits.downgrade().await.unwrap_err();
    assert!(refused.is_mode_conflict(), "{refused}");
    assert_eq!(refused.to_string(), "s is held as a semaphore: only an exclusive lock can be downgraded");
    assert_eq!(scene.net.calls(Verb::Downgrade), 0);
    scene.pass(ms(50)).await;
    assert_eq!(scene.holding("s").await, None, "an error releases");
}

#[tokio::test(start_paused = true)]
async fn max_hold_continues_through_a_downgrade() {
    let scene = Scene::new();
    let writer = scene.client.lock("k").max_hold(secs(5)).await.unwrap();
    scene.pass(secs(3)).await;
    let begun = scene.now();
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.lost().await, LossReason::MaxHold);
    assert_eq!(scene.now(), begun + secs(2));
}
