//! Numbered slots, over a slow network.

use crate::cancelling::polled;
use crate::common::{Fate, Scene, Verb, ms, secs};
use crate::log::Log;
use fencelock::{Client, Error, SlotGuard, Slots};

fn pool(client: &Client, slots: u32) -> Slots {
    client.slots("pool", slots)
}

async fn held(scene: &Scene, slots: u32) -> Vec<u32> {
    let mut held = Vec::new();
    for slot in 0..slots {
        held.extend(scene.holding(&format!("pool#{slot}")).await.map(|_| slot));
    }
    held
}

async fn fill(client: &Client, slots: u32) -> Vec<SlotGuard> {
    let mut held = Vec::new();
    for _ in 0..slots {
        held.push(pool(client, slots).acquire().await.unwrap());
    }
    held.sort_by_key(SlotGuard::slot);
    assert!(held.iter().map(SlotGuard::slot).eq(0..slots), "each slot once");
    held
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_leaves_each_queue_once() {
    for _ in 0..10 {
        let scene = Scene::new();
        let _held = fill(&scene.neighbour(), 3).await;
        scene.net.always(Verb::Release, Fate::Slow(ms(5)));
        let refused = pool(&scene.client, 3).wait(secs(1)).acquire().await.unwrap_err();
        assert!(refused.is_busy(), "{refused}");
        scene.pass(secs(3)).await;
        assert_eq!(scene.net.calls(Verb::Release), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_without_a_waiting_claim_is_found_within_two_seconds() {
    for freed in [0, 7, 19] {
        let scene = Scene::new();
        let mut others = fill(&scene.neighbour(), 20).await;
        let waiting = tokio::spawn(pool(&scene.client, 20).acquire());
        scene.pass(secs(5)).await;
        others.remove(freed).release().await.unwrap();
        scene.pass(secs(2)).await;
        assert!(waiting.is_finished(), "slot {freed}");
        assert_eq!(waiting.await.unwrap().unwrap().slot() as usize, freed);
    }
}

#[tokio::test(start_paused = true)]
async fn of_slots_that_are_granted_at_the_same_time_one_is_kept() {
    let scene = Scene::new();
    let others = fill(&scene.neighbour(), 3).await;
    let waiting = tokio::spawn(pool(&scene.client, 3).acquire());
    scene.pass(secs(1)).await;
    drop(others);
    let guard = waiting.await.unwrap().unwrap();
    scene.pass(secs(3)).await;
    assert_eq!(held(&scene, 3).await, [guard.slot()]);
}

#[tokio::test(start_paused = true)]
async fn numbers_and_keys_that_cannot_be_used_are_refused_without_a_request() {
    let scene = Scene::new();
    for (key, slots) in [("k", 0), ("k", 1001), ("", 3), (&"x".repeat(511), 3)] {
        let set = scene.client.slots(key, slots);
        let is_config = set.check().err().is_some_and(|error| error.is_config());
        // An empty name would be the lock `#0`.
        assert!(is_config || key.is_empty(), "{key:?} {slots}");
        assert_eq!(set.try_acquire().await.is_err(), is_config);
    }
    assert_eq!(scene.net.calls(Verb::Acquire), 1, "of the empty key");
}

#[tokio::test(start_paused = true)]
async fn giving_up_at_any_moment_leaves_no_slot_and_no_position_in_a_queue() {
    for full in [false, true] {
        for polls in 0..2000 {
            let scene = Scene::new();
            let others = if full { fill(&scene.neighbour(), 3).await } else { Vec::new() };
            scene.net.always(Verb::Acquire, Fate::Slow(ms(5)));
            scene.net.always(Verb::Release, Fate::Slow(ms(5)));
            if full {
                tokio::spawn(async move {
                    tokio::time::sleep(ms(80)).await;
                    drop(others);
                });
            }
            let done = polled(polls, Box::pin(pool(&scene.client, 3).acquire())).await;
            let over = done.is_some();
            drop(done);
            scene.pass(secs(5)).await;
            assert_eq!(held(&scene, 3).await, [0; 0], "given up after {polls} polls");
            scene.client.close(secs(1)).await.unwrap();
            if over {
                assert!(polls > 5, "there were await points: {polls}");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_warns_once_of_a_client_that_uses_more_slots() {
    for beyond in [2, 3] {
        let log = Log::default();
        let _listening = log.listen();
        let scene = Scene::new();
        let _others = fill(&scene.neighbour(), 2).await;
        let waiting = tokio::spawn(pool(&scene.client, 2).acquire());
        scene.pass(secs(5)).await;
        assert!(log.warnings().is_empty(), "{:#?}", log.warnings());
        let _held = scene.neighbour().lock(format!("pool#{beyond}")).await.unwrap();
        scene.pass(secs(60)).await;
        let warnings = log.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(warnings[0].contains("another client uses more slots of this key"), "{warnings:#?}");
        waiting.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_counts_the_wait_and_the_attempts_of_all_claims() {
    let scene = Scene::new();
    let _others = fill(&scene.neighbour(), 3).await;
    let error = pool(&scene.client, 3).wait(secs(2)).acquire().await.unwrap_err();
    match error {
        Error::Busy { waited, attempts, .. } => assert!(waited >= secs(2) && attempts >= 3, "{waited:?} {attempts}"),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_without_an_answer_ends_no_wait_for_a_slot() {
    let lost = |count| std::iter::repeat_n(Fate::Lost, count);
    // Of the first pass, and of a later one too: 20 slots have more than the queues of one claim.
    for (slots, unanswered) in [(3, 1), (20, 12)] {
        let scene = Scene::new();
        let mut others = fill(&scene.neighbour(), slots).await;
        scene.net.next(Verb::Acquire, lost(unanswered));
        let waiting = tokio::spawn(pool(&scene.client, slots).acquire());
        scene.pass(secs(20)).await;
        assert!(!waiting.is_finished(), "{slots} slots");
        others.remove(1).release().await.unwrap();
        scene.pass(secs(3)).await;
        assert_eq!(waiting.await.unwrap().unwrap().slot(), 1, "{slots} slots");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_queue_that_is_refused_ends_the_wait_for_a_slot() {
    let scene = Scene::new();
    let _others = fill(&scene.neighbour(), 3).await;
    scene.net.next(Verb::Acquire, [Fate::Pass, Fate::Pass, Fate::Pass, Fate::Denied]);
    let begun = scene.now();
    let refused = pool(&scene.client, 3).wait(secs(3600)).acquire().await.unwrap_err();
    assert!(!refused.is_busy() && scene.now().since(begun) < secs(5), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_try_of_a_slot_without_an_answer_ends_with_the_wait() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Slow(secs(2)));
    let begun = scene.now();
    let error = pool(&scene.client, 3).wait(ms(300)).acquire().await.unwrap_err();
    assert!(scene.now().since(begun) <= ms(400), "{:?}: {error}", scene.now().since(begun));
    scene.pass(secs(5)).await;
    assert_eq!(held(&scene, 3).await, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_without_any_answer_ends_as_that_for_a_key_does() {
    for fate in [Fate::Lost, Fate::Denied] {
        let scene = Scene::with(|net| net.always(Verb::Acquire, fate));
        let begun = scene.now();
        let error = pool(&scene.client, 20).ttl(secs(10)).acquire().await.unwrap_err();
        assert!(!error.is_busy(), "{error}");
        let waited = scene.now().since(begun);
        assert_eq!(waited >= secs(10), fate == Fate::Lost, "{fate:?}: {waited:?}");
        assert!(waited < secs(15), "{fate:?}: {waited:?}");
    }
}
