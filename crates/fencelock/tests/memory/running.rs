//! `run`: the body's value is never thrown away, and a lost lock ends the body.

use crate::common::{Counter, Fate, Scene, Verb, ms, secs};
use fencelock::{Error, LossReason, Released};

/// Counts its own end.
struct Witness(Counter);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.up();
    }
}

#[tokio::test(start_paused = true)]
async fn the_value_and_the_release_are_both_told() {
    let scene = Scene::new();
    let finished = scene.client.lock("k").run(async |held| held.fencing_token().get() > 0).await.unwrap();
    assert!(finished.value);
    assert_eq!(finished.release.unwrap(), Released::Released);
    assert_eq!(scene.holding("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn the_value_is_kept_when_the_release_fails() {
    let scene = Scene::new();
    scene.net.always(Verb::Release, Fate::Lost);
    let finished = scene.client.lock("k").run(async |_| 42).await.unwrap();
    assert_eq!(finished.value, 42);
    assert!(matches!(finished.release, Err(Error::Unreachable { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_body_comes_first_and_that_of_the_release_beside_it() {
    let scene = Scene::new();
    scene.net.always(Verb::Release, Fate::Lost);
    let finished = scene.client.lock("k").run(async |_| Err::<(), _>("no paper")).await.unwrap();
    assert_eq!(finished.value.unwrap_err(), "no paper");
    assert!(finished.release.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_body_is_dropped_when_the_lock_is_lost() {
    let scene = Scene::new();
    scene.net.always(Verb::Renew, Fate::Lost);
    let ended = Counter::default();
    let witness = Witness(ended.clone());
    let lost = scene.client.lock("k").ttl(secs(3)).run(async move |_| {
        let _witness = witness;
        std::future::pending::<()>().await;
    });
    let Err(Error::Lost { reason, .. }) = lost.await else { panic!("lost") };
    assert_eq!((reason, ended.get()), (LossReason::Expired, 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_with_the_loss_keeps_its_value() {
    let scene = Scene::new();
    scene.net.always(Verb::Renew, Fate::Lost);
    let finished = scene.client.lock("k").ttl(secs(3)).run(async |held| held.lost().await).await.unwrap();
    assert_eq!(finished.value, LossReason::Expired);
    assert_eq!(finished.release.unwrap(), Released::AlreadyLost { why: LossReason::Expired });
}

#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_is_ended_by_the_longest_hold() {
    let scene = Scene::new();
    let hung = scene.client.lock("k").max_hold(secs(100)).run(async |_| std::future::pending::<()>().await);
    let Err(Error::Lost { reason, .. }) = hung.await else { panic!("lost") };
    assert_eq!(reason, LossReason::MaxHold);
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None, "and the lock is given back");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_gives_the_lock_back() {
    let scene = Scene::new();
    let lock = scene.client.lock("k");
    let task =
        tokio::spawn(
            async move { lock.run(async |_| panic!("on purpose")).await.map(|_: fencelock::Finished<()>| ()) },
        );
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
        std::future::pending::<()>().await;
    });
    assert!(tokio::time::timeout(secs(5), run).await.is_err());
    assert_eq!(ended.get(), 1);
    scene.pass(ms(10)).await;
    assert_eq!(scene.holding("k").await, None);
}
