//! Elections: terms, values, observers, and work that ends with the term.

use crate::common::{Counter, Fate, Scene, Verb, ms, secs};
use fencelock::{Election, Error, Leader, LossReason, Observation, Observer, RunError};
use std::sync::{Arc, Mutex};

/// Logs its drop.
struct Witness(Arc<Mutex<Vec<&'static str>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.lock().unwrap().push("dropped");
    }
}

fn candidate(scene: &Scene, value: &str) -> Election {
    scene.client.election("e").value(value).ttl(secs(9))
}

/// The next observation, which must be a leader.
async fn leader(observer: &mut Observer) -> Leader {
    match observer.next().await {
        Some(Observation::Leader(leader)) => leader,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn unusable_settings_are_refused_without_a_request() {
    let scene = Scene::new();
    let election = |name: &str| scene.client.election(name);
    let long = "x".repeat(129);
    for bad in [election(""), election("e").value(""), election("e").value("a\nb"), election("e").value(long)] {
        assert!(bad.check().unwrap_err().is_config(), "{bad:?}");
        assert!(bad.clone().campaign().await.unwrap_err().is_config(), "{bad:?}");
        let ran = bad.run_while_leader(async |_| Ok::<_, ()>(())).await;
        assert!(matches!(ran, Err(RunError::Lock(Error::Config(_)))), "{ran:?}");
    }
    assert!(election("").observe().is_err() && election("").leader().await.unwrap_err().is_config());
    assert!(election("e").ttl(ms(1)).check().unwrap_err().is_config());
    assert_eq!(scene.net.calls(Verb::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_before_a_standby_can_lead() {
    let scene = Scene::new();
    let log: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (elected, neighbour) = (Arc::clone(&log), scene.neighbour());
    let standby = tokio::spawn(async move {
        tokio::time::sleep(secs(20)).await;
        let leadership = neighbour.election("e").ttl(secs(9)).campaign().await.unwrap();
        elected.lock().unwrap().push("elected");
        leadership
    });
    scene.net.always(Verb::Renew, Fate::Lost);
    let work = candidate(&scene, "v").run_while_leader(|_| {
        log.lock().unwrap().push("begun");
        let witness = Witness(Arc::clone(&log));
        async move {
            let _witness = witness;
            std::future::pending::<Result<(), ()>>().await
        }
    });
    assert!(tokio::time::timeout(secs(60), work).await.is_err(), "it campaigns behind the standby");
    assert!(standby.await.unwrap().is_leader());
    let log = log.lock().unwrap();
    let (terms, end) = (log.chunks_exact(2), log.chunks_exact(2).remainder());
    assert!(terms.len() > 1 && terms.clone().all(|term| term == ["begun", "dropped"]), "{log:?}");
    assert_eq!(end, ["elected"]);
}

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_its_lease_even_if_nothing_else_has_run() {
    let clock = Arc::new(fencelock::backends::ManualClock::at(secs(1)));
    let memory = Arc::new(fencelock::backends::Memory::with_leases(Arc::clone(&clock) as _));
    let drift = fencelock::Drift::default();
    let client = fencelock::Client::builder().clock(Arc::clone(&clock) as _, drift).backend(memory).unwrap();
    let (polls, mut terms) = (Counter::default(), Vec::new());
    let work = client.election("e").ttl(secs(9)).run_while_leader(|held| {
        terms.push(held.fencing_token());
        let (clock, polls, first) = (Arc::clone(&clock), polls.clone(), terms.len() == 1);
        std::future::poll_fn(move |context| {
            polls.up();
            if !first {
                return std::task::Poll::Ready(Ok::<_, ()>(()));
            }
            // As after a suspend in the middle of a step: it is woken, and its lease is over.
            clock.advance(secs(18));
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
    });
    assert_eq!(work.await, Ok(()));
    assert_eq!(polls.get(), 2, "once in each term");
    assert!(terms.len() == 2 && terms[0] < terms[1]);
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_by_itself_resigns_and_gives_its_result() {
    let scene = Scene::new();
    assert_eq!(candidate(&scene, "v").run_while_leader(async |_| Ok::<_, ()>(7)).await, Ok(7));
    assert_eq!(scene.holding("e").await, None);
    let failed: Result<(), _> = candidate(&scene, "v").run_while_leader(async |_| Err("no paper")).await;
    assert_eq!(failed, Err(RunError::Body("no paper")));
    assert_eq!(scene.holding("e").await, None);
}

#[tokio::test(start_paused = true)]
async fn work_waits_for_the_end_of_a_short_outage_and_not_for_a_backend_that_refuses() {
    let scene = Scene::new();
    scene.net.always(Verb::Acquire, Fate::Lost);
    let observed = Counter::default();
    let count = observed.clone();
    let election = candidate(&scene, "v").on_trouble(move |_| {
        count.up();
    });
    let work = tokio::spawn(election.clone().run_while_leader(|_| async { Ok::<_, ()>(7) }));
    scene.pass(secs(5)).await;
    assert!(!work.is_finished() && observed.get() > 3);
    scene.net.always(Verb::Acquire, Fate::Pass);
    assert_eq!(work.await.unwrap(), Ok(7));
    scene.net.always(Verb::Acquire, Fate::Denied);
    let refused = election.run_while_leader(async |_| Ok::<_, ()>(7)).await;
    assert!(matches!(refused, Err(RunError::Lock(Error::Config(_)))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn an_observer_asks_once_a_second_at_most_while_nothing_changes_and_writes_nothing() {
    let scene = Scene::new();
    let _leading = scene.neighbour().election("e").ttl(secs(3000)).campaign().await.unwrap();
    let mut observer = scene.client.election("e").observe().unwrap();
    leader(&mut observer).await;
    assert!(tokio::time::timeout(secs(100), observer.next()).await.is_err());
    let calls = scene.net.calls(Verb::Inspect);
    assert!((98..=140).contains(&calls), "{calls}");
    assert_eq!([Verb::Acquire, Verb::Renew, Verb::Release].map(|verb| scene.net.calls(verb)), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_at_once_if_the_backend_reports_it() {
    let scene = Scene::new();
    let leading = scene.neighbour().election("e").campaign().await.unwrap();
    let mut observer = scene.client.election("e").observe().unwrap();
    leader(&mut observer).await;
    scene.pass(ms(100)).await;
    let before = scene.now();
    leading.resign().await.unwrap();
    assert_eq!(observer.next().await, Some(Observation::NoLeader));
    assert!(scene.now().since(before) <= ms(15), "{:?}", scene.now().since(before));
}

#[tokio::test(start_paused = true)]
async fn giving_up_the_wait_for_an_observation_loses_none() {
    let scene = Scene::new();
    let mut observer = scene.client.election("e").observe().unwrap();
    let mut seen = Vec::new();
    let mut leading = None;
    // Without a leader, the observer inspects once a second: each state lasts for longer.
    for step in 0..1200 {
        if let Ok(Some(observation)) = tokio::time::timeout(ms(3), observer.next()).await {
            seen.push(observation);
        }
        match step {
            100 => leading = Some(candidate(&scene, "v").campaign().await.unwrap()),
            600 => drop(leading.take()),
            _ => {}
        }
    }
    let [Observation::NoLeader, Observation::Leader(leader), Observation::NoLeader] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(leader.value.as_deref(), Some("v"));
}

#[tokio::test(start_paused = true)]
async fn an_observer_ends_with_its_client() {
    let scene = Scene::new();
    let client = scene.neighbour();
    let mut observer = client.election("e").observe().unwrap();
    assert_eq!(observer.next().await, Some(Observation::NoLeader));
    let ends = tokio::spawn(async move { observer.next().await });
    client.close(secs(1)).await.unwrap();
    assert_eq!(ends.await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_limited_ends_while_its_leader_hangs() {
    let scene = Scene::new();
    let leadership = candidate(&scene, "hangs").max_hold(secs(20)).campaign().await.unwrap();
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let log = Arc::clone(&seen);
    let next = scene.neighbour().election("e").on_wait(move |waiting| {
        log.lock().unwrap().push(waiting.holders.to_string());
    });
    let next = tokio::spawn(next.campaign());
    assert_eq!(leadership.lost().await, LossReason::MaxHold);
    let next = next.await.unwrap().unwrap();
    assert!(next.term() > leadership.term() && !leadership.is_leader());
    let seen = seen.lock().unwrap();
    assert!(seen.iter().any(|leader| leader.contains("hangs")), "{seen:?}");
}
