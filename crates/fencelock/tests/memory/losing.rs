//! A loss is reported once, in time, and permanently.

use crate::common::{Fate, Scene, Verb, eventually, ms, secs};
use crate::log::Log;
use fencelock::backends::{ManualClock, Memory, TokioClock};
use fencelock::{Client, Drift, Error, LossReason, Occupant};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn a_backend_that_stops_answering_costs_the_lock_at_the_deadline_to_the_millisecond() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    scene.pass(secs(100)).await;
    scene.net.always(Verb::Renew, Fate::Lost);
    let left = guard.remaining();
    let deadline = scene.now() + left;
    assert!(left > secs(5), "it was renewed until now: {left:?}");
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(scene.now() >= deadline, "not before: {:?} {deadline:?}", scene.now());
    assert!(scene.now().since(deadline) <= ms(2), "not after: {:?}", scene.now().since(deadline));
    assert!(scene.holding("k").await.is_some(), "the backend grants it to no other holder yet");
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), ms(0));
    assert!(matches!(guard.check(), Err(Error::Lost { reason: LossReason::Expired, .. })));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_reported_immediately_as_a_deletion() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(30)).await.unwrap();
    let seen = scene.holding("k").await.unwrap();
    let before = scene.now();
    scene.neighbour().evict(&seen).await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Deleted);
    assert!(scene.now().since(before) <= ms(2), "without waiting for a renewal: {:?}", scene.now().since(before));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_for_a_waiter_is_reported_as_taken_by_that_waiter() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(30)).await.unwrap();
    let neighbour = scene.neighbour();
    let next = tokio::spawn(neighbour.lock("k").label("successor").acquire());
    scene.pass(ms(10)).await;
    let seen = scene.holding("k").await.unwrap();
    scene.neighbour().evict(&seen).await.unwrap();
    let LossReason::TakenBy(holders) = guard.lost().await else { panic!("{:?}", guard.lost().await) };
    let Occupant::Holder(successor) = holders.into_first() else { panic!("a holder of ours") };
    assert_eq!(successor.owner.label(), Some("successor"));
    assert_eq!(successor.id, next.await.unwrap().unwrap().holder());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_hung_guard_gets_the_lock_after_max_hold() {
    for leases in [true, false] {
        for sharing in [true, false] {
            let clock = Arc::new(TokioClock::starting_now());
            let memory = if leases { Memory::with_leases(Arc::clone(&clock) as _) } else { Memory::new() };
            let builder = Client::builder().clock(clock, Drift::default()).sharing(sharing);
            let client = builder.backend(Arc::new(memory)).unwrap();
            let hung = client.lock("k").ttl(secs(9)).max_hold(secs(60)).await.unwrap();
            let next = client.lock("k").wait(secs(61)).await.unwrap();
            assert_eq!(hung.lost().await, LossReason::MaxHold, "leases: {leases}, sharing: {sharing}");
            assert!(next.fencing_token() > hung.fencing_token());
            drop(hung);
            tokio::time::sleep(secs(1)).await;
            let holding = client.inspect("k").await.unwrap().unwrap();
            assert!(next.is_held() && holding.first().holder_id() == Some(next.holder()), "{holding:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_call_on_a_guard_sees_its_end_before_any_task_has_run() {
    let clock = Arc::new(ManualClock::at(secs(1)));
    let memory = Arc::new(Memory::with_leases(Arc::clone(&clock) as _));
    let client = Client::builder().clock(Arc::clone(&clock) as _, Drift::default()).backend(memory).unwrap();
    let guard = client.lock("k").ttl(secs(9)).await.unwrap();
    // As after a SIGSTOP or a suspend: time has passed, and nothing of this process has run.
    clock.advance(secs(18));
    assert!(!guard.is_held());
    // A loss is final.
    assert_eq!(guard.lost().await, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_beyond_the_lease_no_renewal_is_sent() {
    let clock = Arc::new(ManualClock::at(secs(1)));
    let memory = Arc::new(Memory::with_leases(Arc::clone(&clock) as _));
    let net = crate::common::Faulty::over(memory, TokioClock::starting_now());
    let client =
        Client::builder().clock(Arc::clone(&clock) as _, Drift::default()).backend(Arc::clone(&net) as _).unwrap();
    let guard = client.lock("k").ttl(secs(9)).await.unwrap();
    clock.advance(secs(18));
    tokio::time::sleep(secs(60)).await;
    assert_eq!(net.calls(Verb::Renew), 0);
    assert!(!guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_hold_without_leases_never_lapses_also_when_it_was_handed_over() {
    let clock = Arc::new(ManualClock::at(secs(1)));
    let memory: Arc<Memory> = Arc::new(Memory::new());
    let client = Client::builder().clock(Arc::clone(&clock) as _, Drift::default()).backend(memory).unwrap();
    let first = client.lock("k").await.unwrap();
    let second = tokio::spawn(client.lock("k").acquire());
    tokio::time::sleep(ms(1)).await;
    drop(first);
    let second = second.await.unwrap().unwrap();
    // The runtime is blocked for an hour: nothing is renewed, and the backend takes nothing away.
    clock.advance(secs(3600));
    assert!(second.is_held());
    assert!(client.inspect("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_loss_of_a_released_lock_costs_nothing() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").await.unwrap();
    let held = guard.held();
    guard.release().await.unwrap();
    let polls = crate::common::Counter::default();
    let lost = held.lost();
    tokio::pin!(lost);
    let counted = std::future::poll_fn(|context| {
        assert!(polls.up() < 10, "it spins");
        lost.as_mut().poll(context)
    });
    assert!(tokio::time::timeout(secs(60), counted).await.is_err(), "it is not lost, it was released");
}

#[tokio::test(start_paused = true)]
async fn every_task_that_watches_a_hold_is_notified() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(3)).await.unwrap();
    let notified = crate::common::Counter::default();
    for _ in 0..10 {
        let (held, notified) = (guard.held(), notified.clone());
        tokio::spawn(async move {
            held.lost().await;
            notified.up();
        });
    }
    scene.net.always(Verb::Renew, Fate::Lost);
    eventually("all ten are notified", async || notified.get() == 10).await;
}

#[tokio::test(start_paused = true)]
async fn one_renewal_that_hangs_does_not_cost_the_lock() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(9)).await.unwrap();
    scene.pass(secs(1)).await;
    scene.net.next(Verb::Renew, [Fate::Hang]);
    scene.pass(secs(60)).await;
    assert!(guard.is_held(), "the next one was sent before the lease ended");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_is_repeated() {
    let scene = Scene::new();
    let guard = scene.client.lock("k").ttl(secs(3)).await.unwrap();
    scene.net.next(Verb::Renew, [Fate::Panic]);
    scene.pass(secs(20)).await;
    assert!(guard.is_held() && scene.net.calls(Verb::Renew) > 10);
}

#[tokio::test(start_paused = true)]
async fn of_many_leases_whose_renewal_fails_the_log_names_ten_and_counts_the_others() {
    let log = Log::default();
    let _listening = log.listen();
    let scene = Scene::new();
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(scene.client.lock(format!("k{number}")).ttl(secs(9)).await.unwrap());
    }
    scene.net.next(Verb::Renew, [Fate::Lost]);
    scene.pass(secs(20)).await;
    let has = |text: &str| log.warnings().iter().filter(|line| line.contains(text)).count();
    assert_eq!(has("renewal failed, trying again"), 10, "{:?}", log.warnings());
    assert_eq!(has("renewals of 20 more leases failed"), 1, "{:?}", log.warnings());
    assert!(guards.iter().all(fencelock::Guard::is_held), "all were renewed then");
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_lease_says_why_it_could_not_be_renewed() {
    let scene = Scene::new();
    let guards = scene.client.lock_all(["a", "b"]).ttl(secs(9)).await.unwrap();
    scene.net.always(Verb::Renew, Fate::Denied);
    let loss = guards.lost().await;
    assert_eq!(loss.reason, LossReason::Expired);
    let text = loss.to_string();
    assert!(text.starts_with("its lease ran out before it could be renewed: ") && text.contains("WRONGPASS"), "{text}");
    for error in [guards.check().unwrap_err(), guards.release().await.unwrap_err()] {
        let text = format!("{error:#}");
        assert!(text.contains("; renewals failed for ") && text.contains("WRONGPASS"), "{text}");
    }
}
