//! `run`: what the body returns is never thrown away, and a lost lock ends the body.

use crate::common::{Counter, Fate, Scene, Verb, ms, secs};
use fencelock::{Error, Eviction, LossReason, RunError};

/// Counts its own end.
struct Witness(Counter);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.up();
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_made_under_the_lock_is_good_although_the_release_fails() {
    let scene = Scene::new();
    scene.net.always(Verb::Release, Fate::Lost);
    assert_eq!(scene.client.lock("k").run(async |_| Ok::<_, ()>(42)).await, Ok(42));
    assert!(scene.holding("k").await.is_some(), "the release could not be sent");
    scene.net.always(Verb::Release, Fate::Pass);
    scene.pass(secs(30)).await;
    assert_eq!(scene.holding("k").await, None, "it goes on in the background");
}

#[tokio::test(start_paused = true)]
async fn the_body_is_dropped_when_the_lock_is_lost() {
    let scene = Scene::new();
    scene.net.always(Verb::Renew, Fate::Lost);
    let ended = Counter::default();
    let witness = Witness(ended.clone());
    let lost = scene.client.lock("k").ttl(secs(3)).run(async move |_| {
        let _witness = witness;
        std::future::pending::<Result<(), ()>>().await
    });
    let Err(RunError::Lock(Error::Lost { reason, .. })) = lost.await else { panic!("lost") };
    assert_eq!((reason, ended.get()), (LossReason::Expired, 1));
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_only_the_release_finds_is_reported_with_the_value() {
    let scene = Scene::new();
    let lock = scene.client.lock("k");
    let ran = lock.run(async |held| {
        let other = scene.neighbour();
        let seen = other.inspect("k").await.unwrap().unwrap();
        assert_eq!(other.evict(&seen).await.unwrap(), Eviction::Evicted);
        Ok::<_, ()>(held.is_held())
    });
    let Err(RunError::LostAfter { value, reason, .. }) = ran.await else { panic!("another has ended the hold") };
    assert!(value, "the loss was not known yet");
    assert_eq!(reason, LossReason::Deleted);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_gives_the_lock_back() {
    let scene = Scene::new();
    let lock = scene.client.lock("k");
    let task = tokio::spawn(async move { lock.run::<(), (), _, _>(async |_| panic!("on purpose")).await });
    assert!(task.await.unwrap_err().is_panic());
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn giving_the_run_up_drops_the_body_and_gives_the_lock_back() {
    let scene = Scene::new();
    let ended = Counter::default();
    let witness = Witness(ended.clone());
    let run = scene.client.lock("k").run(async move |_| {
        let _witness = witness;
        std::future::pending::<Result<(), ()>>().await
    });
    assert!(tokio::time::timeout(secs(5), run).await.is_err());
    assert_eq!(ended.get(), 1);
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_with_the_loss_keeps_its_value() {
    let scene = Scene::new();
    scene.net.always(Verb::Renew, Fate::Lost);
    let lock = scene.client.lock("k").ttl(secs(3));
    let failed = lock.clone().run(async |held| Err::<(), _>(held.lost().await)).await;
    assert_eq!(failed, Err(RunError::Body(LossReason::Expired)), "an error of the body comes first");
    let ran = lock.run(async |held| Ok::<_, ()>(held.lost().await)).await;
    let Err(RunError::LostAfter { value, key, reason }) = ran else { panic!("{ran:?}") };
    assert_eq!((value, reason), (LossReason::Expired, LossReason::Expired));
    assert_eq!(key, "k");
}
