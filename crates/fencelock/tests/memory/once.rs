//! Work that succeeds at most once in each window, over a network that loses requests and replies.

use crate::cancelling::polled;
use crate::common::{Counter, Fate, Scene, Verb, ms, secs};
use fencelock::{Client, Error, Once, OnceError, OncePerWindow};
use std::time::Duration;

const HOUR: Duration = secs(3600);

fn work(client: &Client) -> OncePerWindow {
    client.once("k", HOUR)
}

async fn run(work: OncePerWindow) -> Result<Once<u32>, OnceError<u32, &'static str>> {
    work.run(async |_| Ok(7)).await
}

async fn is_done(scene: &Scene) -> bool {
    work(&scene.neighbour()).done().await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn lost_replies_of_reads_and_writes_are_requested_again() {
    for fate in [Fate::Lost, Fate::Mute, Fate::Full, Fate::Stray(ms(250))] {
        for even_if_failed in [false, true] {
            let scene = Scene::new();
            scene.net.next(Verb::ReadCompletion, [fate; 3]);
            scene.net.next(Verb::WriteCompletion, [fate; 3]);
            let work = work(&scene.client);
            let work = if even_if_failed { work.even_if_failed() } else { work };
            assert_eq!(run(work).await, Ok(Once::Done(7)), "{fate:?}");
            assert!(is_done(&scene).await);
            assert_eq!(scene.holding("k").await, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_is_not_recorded_does_not_count() {
    for fate in [Fate::Lost, Fate::Mute] {
        let scene = Scene::new();
        scene.net.always(Verb::WriteCompletion, fate);
        let Err(OnceError::NotCounted { value: 7, error }) = run(work(&scene.client)).await else { panic!("{fate:?}") };
        assert!(error.is_unreachable(), "{error:#}");
        assert_eq!(is_done(&scene).await, fate == Fate::Mute);
        scene.pass(secs(2)).await;
        assert_eq!(scene.holding("k").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_if_its_start_is_not_recorded() {
    for fate in [Fate::Lost, Fate::Mute, Fate::Denied] {
        let (scene, started) = (Scene::new(), Counter::default());
        scene.net.always(Verb::WriteCompletion, fate);
        let ended = work(&scene.client).even_if_failed().run(async |_| Ok::<_, ()>(started.up())).await;
        assert!(matches!(ended, Err(OnceError::Lock(Error::Unreachable { .. } | Error::Config(_)))), "{ended:?}");
        assert_eq!(started.get(), 0, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_if_it_is_unknown_whether_the_work_is_done() {
    let scene = Scene::new();
    scene.net.always(Verb::ReadCompletion, Fate::Lost);
    assert!(matches!(run(work(&scene.client)).await, Err(OnceError::Lock(Error::Unreachable { .. }))));
    scene.pass(secs(2)).await;
    assert_eq!(scene.holding("k").await, None);
    scene.net.always(Verb::ReadCompletion, Fate::Denied);
    let calls = scene.net.calls(Verb::Acquire);
    assert!(matches!(run(work(&scene.client)).await, Err(OnceError::Lock(Error::Config(_)))));
    assert_eq!(scene.net.calls(Verb::Acquire), calls, "no lock is requested");
}

#[tokio::test(start_paused = true)]
async fn a_wait_includes_the_time_to_read_whether_the_work_is_done() {
    for (wait, most) in [(secs(2), ms(2100)), (ms(300), ms(400))] {
        let scene = Scene::new();
        scene.net.always(Verb::ReadCompletion, Fate::Hang);
        scene.net.always(Verb::Acquire, Fate::Hang);
        let begun = tokio::time::Instant::now();
        let Err(OnceError::Lock(Error::Unreachable { waited, .. })) = run(work(&scene.client).wait(wait)).await else {
            panic!("a backend that does not answer")
        };
        assert!(begun.elapsed() <= most && (wait..=most).contains(&waited), "{:?} {waited:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_requests_no_lock() {
    let scene = Scene::new();
    assert_eq!(run(work(&scene.neighbour())).await, Ok(Once::Done(7)));
    assert!(matches!(run(work(&scene.client)).await, Ok(Once::AlreadyDone(_))));
    assert_eq!(scene.net.calls(Verb::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_arrives_after_the_lease_is_refused() {
    let scene = Scene::new();
    scene.net.always(Verb::WriteCompletion, Fate::Stray(secs(9)));
    scene.net.always(Verb::Renew, Fate::Lost);
    assert!(matches!(run(work(&scene.client).ttl(secs(3))).await, Err(OnceError::NotCounted { .. })));
    scene.pass(secs(20)).await;
    assert!(!is_done(&scene).await);
}

#[tokio::test(start_paused = true)]
async fn windows_and_keys_that_cannot_be_used_are_refused_without_a_request() {
    let scene = Scene::new();
    for (key, every) in [("k", ms(999)), ("k", Duration::ZERO), ("k", secs(401 * 86_400)), ("", HOUR)] {
        let work = scene.client.once(key, every);
        assert!(work.check().unwrap_err().is_config());
        assert!(matches!(run(work).await, Err(OnceError::Lock(Error::Config(_)))));
    }
    for work in [scene.client.once("k", HOUR).offset(HOUR), scene.client.min_interval("k", HOUR).offset(secs(1))] {
        assert!(work.check().unwrap_err().is_config());
        assert!(matches!(work.done().await, Err(Error::Config(_))));
    }
    assert_eq!(scene.net.calls(Verb::ReadCompletion), 0);
}

/// Gives the work up after 0, 1, 2, ... polls, until it ends by itself.
#[tokio::test(start_paused = true)]
async fn giving_up_at_any_moment_leaves_no_lock_and_no_second_success() {
    for even_if_failed in [false, true] {
        for polls in 0..2000 {
            let scene = Scene::new();
            for verb in [Verb::Acquire, Verb::Release, Verb::ReadCompletion, Verb::WriteCompletion] {
                scene.net.always(verb, Fate::Slow(ms(5)));
            }
            let work_here = work(&scene.client);
            let work_here = if even_if_failed { work_here.even_if_failed() } else { work_here };
            let ended = polled(polls, Box::pin(run(work_here))).await;
            scene.pass(secs(4)).await;
            assert_eq!(scene.holding("k").await, None, "held, given up after {polls} polls");
            let again = run(work(&scene.neighbour())).await.unwrap();
            let counts = matches!(ended, Some(Ok(Once::Done(7))));
            assert!(!(counts && matches!(again, Once::Done(_))), "two successes");
            if ended.is_some() {
                assert!(counts && polls > 10, "{ended:?} after {polls} polls");
                break;
            }
        }
    }
}
