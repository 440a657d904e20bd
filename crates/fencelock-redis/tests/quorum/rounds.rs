//! Rounds of a quorum: what decides them, how fast, and that no lock is left behind. The test controls the clock.

use crate::kit::{Road, TestQuorum, claim, ms};
use fencelock::backends::{ManualClock, Memory, Quorum};
use fencelock_conformance::EventRecorder;
use fencelock_core::{Acquire, Backend, Downgrade, Drift, Intent, Release, Renew, Renewal};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const TEN_SECONDS: Duration = Duration::from_secs(10);
/// The minimum limit of a node. No test needs a shorter one.
const NO_LIMIT_PASSED: Duration = ms(15);

#[tokio::test(start_paused = true)]
async fn an_unresponsive_node_among_three_does_not_delay() {
    // Grants of nodes whose clocks differ are raised after a moment.
    for skews in [[0, 0, 0], [0, 20, 10]] {
        let test = TestQuorum::with_skews(&skews);
        test.nodes[1].road(Road::BlackHole);
        let begun = Instant::now();
        let claims: Vec<_> = (0..100).map(|n| claim(&format!("k{n}"), TEN_SECONDS)).collect();
        futures_util::future::join_all(claims.iter().map(|claim| test.grants(claim))).await;
        assert!(begun.elapsed() < NO_LIMIT_PASSED, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_arrives_too_late_is_released_everywhere() {
    let test = TestQuorum::new(3);
    let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
    let nodes = test.nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Backend>).collect();
    let quorum = Quorum::with_clock(nodes, Arc::clone(&clock) as _, Drift::default()).unwrap();
    for node in &test.nodes {
        node.road(Road::Slow(ms(10)));
    }
    let claim = claim("k", TEN_SECONDS);
    // This process is stopped for ten seconds, without effect on the nodes: their leases have just started.
    let (reply, ()) = futures_util::future::join(quorum.acquire(&claim), async {
        sleep(ms(5)).await;
        clock.advance(TEN_SECONDS);
        sleep(ms(6)).await;
        assert_eq!(test.taken("k").await, 3, "granted");
    })
    .await;
    let unknown = reply.answer.unwrap_err();
    assert!(unknown.to_string().contains("lease had already expired"), "{unknown}");
    assert_eq!(test.taken("k").await, 0);
}

/// The replies of the nodes come in any order, after their limits or never, and the caller gives up at any moment.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_and_a_hold_keeps_its_majority_in_any_storm() {
    let (mut won, mut downgraded) = (0, 0);
    for seed in 0..500 {
        // Grants of nodes whose clocks differ are raised.
        let test = TestQuorum::with_skews(if seed % 2 == 0 { &[0, 0, 0] } else { &[0, 20, 10] });
        for (number, node) in (0..).zip(&test.nodes) {
            node.road(Road::Storm(seed * 3 + number));
        }
        let claim = claim("k", Duration::from_secs(60));
        let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
        let reply = timeout(ms(seed * 7 % 100), test.quorum.acquire(&claim)).await;
        let holds = reply.is_ok_and(|reply| matches!(reply.answer, Ok(Acquire::Granted { .. })));
        if holds {
            won += 1;
            sleep(ms(seed * 13 % 40)).await;
            assert!(test.taken("k").await >= 2, "seed {seed}: a majority has the lock of a claim that was won");
            let downgrade = timeout(ms(seed * 11 % 100), test.quorum.downgrade(&renewal)).await;
            if let Ok(Ok(Downgrade::Downgraded { token })) = downgrade {
                downgraded += 1;
                assert!(test.nodes_with(&claim, token).await >= 2, "seed {seed}: a majority has confirmed the token");
            }
        }
        if holds || seed % 3 == 0 {
            let _ = test.release(&claim).await;
        }
        sleep(Duration::from_secs(20)).await;
        assert_eq!(test.taken("k").await, 0, "seed {seed}: a node keeps a lock without a holder");
    }
    assert!(won > 50 && downgraded > 10, "{won} {downgraded}");
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_lock_costs_two_requests_to_each_node() {
    let test = TestQuorum::new(3);
    let claim = claim("k", TEN_SECONDS);
    test.grants(&claim).await;
    assert_eq!(test.release(&claim).await, Ok(Release::Released));
    sleep(ms(100)).await;
    assert!(test.nodes.iter().all(|node| node.requests() == 2));
}

/// With one worker, the task that was spawned last runs first: that of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_release_waits_for_a_dropped_claim_whose_task_has_not_run() {
    let on_the_worker = tokio::spawn(async {
        let test = TestQuorum::new(3);
        let claim = claim("k", TEN_SECONDS);
        let mut claiming = Box::pin(test.quorum.acquire(&claim));
        assert!(!poll_fn(|cx| Poll::Ready(claiming.as_mut().poll(cx).is_ready())).await, "it is under way");
        drop(claiming);
        let released = test.release(&claim).await;
        assert!(matches!(released, Ok(Release::Released | Release::Absent)), "{released:?}");
        let requests: usize = test.nodes.iter().map(|node| node.requests()).sum();
        assert!(requests >= 2 * 2, "{requests}: a majority received the claim first");
    });
    on_the_worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_the_release_of_a_dropped_claim_the_next_claim_wins_though_one_of_five_nodes_is_dead() {
    for delays in [[1, 1, 40, 40], [40, 30, 20, 10], [1, 1, 1, 45], [45, 45, 45, 1], [5; 4]] {
        for dropped_after in 0..50 {
            let test = TestQuorum::new(5);
            test.nodes[0].road(Road::Refusing);
            for (node, delay) in test.nodes[1..].iter().zip(delays) {
                node.road(Road::Slow(ms(delay)));
            }
            let dropped = claim("k", TEN_SECONDS);
            let _ = timeout(ms(dropped_after), test.quorum.acquire(&dropped)).await;
            let released = test.release(&dropped).await;
            assert!(matches!(released, Ok(Release::Released | Release::Absent)), "{delays:?}: {released:?}");
            test.grants(&claim("k", TEN_SECONDS)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_renewals_goes_to_each_node_once_and_waits_for_none_that_hangs() {
    let test = TestQuorum::new(3);
    let claims: Vec<_> = (0..500).map(|n| claim(&format!("k{n}"), TEN_SECONDS)).collect();
    for claim in &claims {
        test.grants(claim).await;
    }
    test.nodes[0].road(Road::BlackHole);
    let renewals: Vec<_> =
        claims.iter().map(|claim| Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl)).collect();
    let requests = || test.nodes.iter().map(|node| node.requests()).collect::<Vec<_>>();
    let (before, begun) = (requests(), Instant::now());
    let answers = test.quorum.renew(&renewals).await;
    assert!(answers.iter().all(|answer| *answer == Ok(Renew::Renewed { waiters: 0 })), "{answers:?}");
    assert!(begun.elapsed() < NO_LIMIT_PASSED, "{:?}", begun.elapsed());
    assert_eq!(requests(), before.iter().map(|requests| requests + 1).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_with_a_hold_that_is_unknown_is_answered_while_the_leases_run() {
    let test = TestQuorum::new(3);
    let ttl = Duration::from_secs(1);
    let claims: Vec<_> = (0..1000).map(|n| claim(&format!("k{n}"), ttl)).collect();
    for claim in &claims {
        test.grants(claim).await;
    }
    // One node has lost one of the holds, and another does not answer: so the state of that hold is unknown.
    let odd = &claims[500];
    test.nodes[1].release(&odd.key, &odd.holder.id).await.unwrap();
    test.nodes[0].road(Road::BlackHole);
    let renewals: Vec<_> =
        claims.iter().map(|claim| Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl)).collect();
    let begun = Instant::now();
    let answers = test.quorum.renew(&renewals).await;
    assert!(begun.elapsed() < ttl / 3, "a longer wait would lose all of them: {:?}", begun.elapsed());
    let renewed = answers.iter().filter(|answer| **answer == Ok(Renew::Renewed { waiters: 0 })).count();
    assert_eq!((renewed, answers[500].is_err()), (999, true));
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_left_out_until_a_probe_succeeds() {
    let test = TestQuorum::with_skews(&[0, 20, 10]);
    test.nodes[0].road(Road::Refusing);
    let round = async || {
        let claim = claim("k", TEN_SECONDS);
        test.grants(&claim).await;
        claim
    };
    for n in 0..3 {
        test.grants(&claim(&format!("first{n}"), TEN_SECONDS)).await;
    }
    let before = test.nodes[0].requests();
    test.nodes[2].road(Road::Slow(ms(5)));
    let unasked = claim("unasked", TEN_SECONDS);
    let token = test.grants(&unasked).await;
    assert_eq!(test.nodes[0].requests(), before, "known to be dead");
    assert_eq!(test.nodes_with(&unasked, token).await, 2, "it confirms no token");
    test.nodes[2].road(Road::Open);
    test.nodes[0].road(Road::Open);
    sleep(ms(150)).await;
    test.grants(&claim("probing", TEN_SECONDS)).await;
    sleep(ms(1)).await;
    round().await;
    sleep(ms(1)).await;
    assert!(test.nodes[0].holding("k").await.is_some(), "it participates again");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_client_panics_counts_as_one_that_does_not_answer() {
    let test = TestQuorum::with_skews(&[0, 20, 10]);
    test.nodes[1].road(Road::Panicking);
    let claim = claim("k", TEN_SECONDS);
    test.grants(&claim).await;
    let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
    assert!(matches!(test.quorum.renew(&[renewal]).await[..], [Ok(Renew::Renewed { .. })]));
    assert_eq!(test.quorum.inspect(&claim.key).await.unwrap().unwrap().first().holder_id(), Some(claim.holder.id));
    assert_eq!(test.release(&claim).await, Ok(Release::Released));
    assert_eq!(test.taken("k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_sent_to_a_node_is_not_released_there() {
    let test = TestQuorum::new(3);
    test.nodes[0].road(Road::Refusing);
    test.nodes[1].take(&claim("k", TEN_SECONDS)).await;
    test.is_busy(&claim("k", TEN_SECONDS)).await;
    sleep(TEN_SECONDS).await;
    let requests: Vec<_> = test.nodes.iter().map(|node| node.requests()).collect();
    assert_eq!(requests, [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn where_the_nodes_that_answer_disagree_the_error_says_so() {
    let test = TestQuorum::new(3);
    test.nodes[0].take(&claim("k", TEN_SECONDS)).await;
    test.nodes[2].road(Road::Refusing);
    let unknown = test.quorum.inspect(&claim("k", TEN_SECONDS).key).await.unwrap_err().to_string();
    assert!(unknown.contains("the others disagree: held by test:1 on one, free on 1"), "{unknown}");
    assert!(test.quorum.inspect(&claim("free", TEN_SECONDS).key).await.is_ok(), "two of three are a majority");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_free_sends_no_event() {
    let test = TestQuorum::new(3);
    let recorder = EventRecorder::listening_to(&*test.quorum);
    let held = claim("k", TEN_SECONDS);
    test.nodes[0].take(&held).await;
    test.nodes[1].take(&held).await;
    for _ in 0..5 {
        test.is_busy(&claim("k", TEN_SECONDS).with_intent(Intent::Enqueue)).await;
        sleep(ms(5)).await;
    }
    assert!(recorder.recorded().is_empty(), "each event makes a waiter poll at once");
}

#[test]
fn one_node_listed_twice_and_nodes_of_two_kinds_are_refused() {
    let clock = Arc::new(ManualClock::default());
    let leases: Arc<dyn Backend> = Arc::new(Memory::with_leases(clock));
    let endless: Arc<dyn Backend> = Arc::new(Memory::new());
    let twice = Quorum::trusting_empty(vec![Arc::clone(&leases), Arc::clone(&leases)]).unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
    let mixed = Quorum::trusting_empty(vec![leases, endless]).unwrap_err();
    assert!(mixed.to_string().contains("some of the nodes"), "{mixed}");
    assert!(Quorum::trusting_empty(Vec::new()).is_err());
}
