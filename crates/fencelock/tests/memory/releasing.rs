//! A release reports its result, and never touches the lock of another holder.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, LossReason, Released};

#[tokio::test(start_paused = true)]
async fn releasing_a_lock_that_was_taken_names_the_taker_and_leaves_it_alone() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(3)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Hang);
    // For example, the server's clock runs fast: it grants the key to another holder before our lease ends.
    let seen = scene.holding("k").await.unwrap();
    fencelock::contract::Backend::evict(&*scene.memory, &seen).await.unwrap();
    let thief = scene.neighbour().lock("k").label("thief").ttl(secs(30)).await.unwrap();
    assert!(guard.is_held(), "the loss is not known yet");
    let Err(Error::Lost { reason: LossReason::TakenBy(by), .. }) = guard.release().await else {
        panic!("taken by the thief")
    };
    assert_eq!(by.first().holder_id(), Some(thief.holder()));
    assert!(scene.holding("k").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_release_with_a_lost_reply_and_a_waiter_is_a_release() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").await.unwrap();
    let next = tokio::spawn(scene.neighbour().lock("k").acquire());
    scene.pass(ms(10)).await;
    scene.net.next(Verb::Release, [Fate::Mute]);
    guard.release().await.expect("we handed it on");
    assert!(next.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_can_be_called_again_by_proof() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").await.unwrap();
    let holder = guard.holder();
    scene.net.always(Verb::Release, Fate::Lost);
    assert!(matches!(guard.release().await, Err(Error::Unreachable { attempts: 3, .. })));
    assert!(scene.holding("k").await.is_some());
    assert_eq!(scene.neighbour().release("k", holder).await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_release_half_way_still_releases() {
    for polls in 0..20 {
        let scene = Scene::new();
        scene.net.always(Verb::Release, Fate::Slow(ms(5)));
        let guard = scene.client.lock("k").await.unwrap();
        let mut release = Box::pin(guard.release());
        for _ in 0..polls {
            let _ = tokio::time::timeout(ms(1), &mut release).await.is_ok_and(|done| panic!("{done:?}"));
            if polls > 8 {
                break;
            }
        }
        drop(release);
        scene.pass(ms(100)).await;
        assert!(scene.holding("k").await.is_none(), "dropped after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_not_waited_for_beyond_the_end_of_the_lease() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Lost);
    scene.net.always(Verb::Release, Fate::Hang);
    scene.pass(secs(6)).await;
    assert!(guard.remaining() > secs(1), "{:?}", guard.remaining());
    let deadline = scene.now() + guard.remaining();
    let error = guard.release().await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(scene.now() >= deadline && scene.now().since(deadline) <= ms(2), "{:?}", scene.now().since(deadline));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_comes_just_after_the_end_of_the_lease_is_waited_for() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(3)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Lost);
    scene.pass(guard.remaining().saturating_sub(ms(100))).await;
    assert!(guard.is_held());
    scene.net.next(Verb::Release, [Fate::Slow(ms(300))]);
    let before = scene.now();
    assert!(guard.release().await.unwrap_err().is_lost(), "it tells that the release came too late");
    assert!(scene.now().since(before) >= ms(300));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_run_out_is_released_in_the_background() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(3)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Mute);
    guard.lost().await;
    scene.net.next(Verb::Release, [Fate::Slow(secs(1))]);
    let before = scene.now();
    assert!(matches!(guard.release().await, Err(Error::Lost { reason: LossReason::Expired, .. })));
    assert_eq!(scene.now(), before, "it does not wait");
    scene.pass(secs(1) + ms(10)).await;
    assert!(scene.holding("k").await.is_none(), "a renewal without a reply had prolonged it");
    scene.pass(secs(10)).await;
    assert_eq!(scene.net.calls(Verb::Release), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_reply_continues_in_the_background() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(30)).await.unwrap();
    scene.net.always(Verb::Release, Fate::Lost);
    guard.release().await.unwrap_err();
    scene.pass(secs(5)).await;
    scene.net.always(Verb::Release, Fate::Pass);
    scene.pass(secs(2)).await;
    assert!(scene.holding("k").await.is_none());
}
