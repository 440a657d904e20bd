//! A key has at most one holder.

use crate::Fixture;
use crate::case::{Case, Need, case, case_for};
use crate::event_recorder::EventRecorder;
use crate::test_client::{LONG, TestClient, expect_known, fresh_key, test_clients, test_clients_for};
use fencelock_core::{Acquire, Event, Expiry, Fault, Intent, Key, Release, Unknown};
use futures_util::future::join_all;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(a_free_key_is_granted_at_once),
        case(a_held_key_is_busy_for_all_other_clients),
        case(a_new_attempt_of_the_same_client_is_refused),
        case(a_busy_answer_names_the_occupant_and_its_end),
        case_for(&[Need::Queues], a_queued_answer_names_the_occupant_and_its_end),
        case(a_try_at_a_busy_key_changes_nothing),
        case(one_of_many_concurrent_tries_wins),
        case(keys_are_independent),
        case(sixty_four_tasks_lose_no_increment),
        case(threads_with_separate_runtimes_lose_no_increment),
    ]
}

async fn a_free_key_is_granted_at_once(fixture: &dyn Fixture) {
    for intent in [Intent::Try, Intent::Enqueue] {
        let [a] = test_clients(fixture).await;
        let answer = a.claims(intent).await;
        assert!(matches!(answer, Acquire::Granted { .. }), "{intent:?}: {answer:?}");
    }
}

async fn a_held_key_is_busy_for_all_other_clients(fixture: &dyn Fixture) {
    let [a, b, c] = test_clients(fixture).await;
    a.takes().await;
    b.is_refused().await;
    c.is_refused().await;
}

async fn a_new_attempt_of_the_same_client_is_refused(fixture: &dyn Fixture) {
    let [a] = test_clients(fixture).await;
    a.takes().await;
    a.new_attempt().is_refused().await;
}

async fn a_busy_answer_names_the_occupant_and_its_end(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    let occupied = b.is_refused().await;
    assert_eq!(occupied.holders, a.holders(), "holder, owner and label");
    check_end(&a, occupied.expiry);
}

async fn a_queued_answer_names_the_occupant_and_its_end(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    a.takes().await;
    let occupied = b.is_queued(0).await;
    assert_eq!(occupied.holders, a.holders(), "holder, owner and label");
    check_end(&a, occupied.expiry);
}

fn check_end(holder: &TestClient, end: Expiry) {
    match end {
        Expiry::In(left) => assert!(!left.is_zero() && left <= holder.ttl, "{left:?} left of {:?}", holder.ttl),
        Expiry::Never => assert!(!holder.backend.capabilities().expires, "holds expire at this backend"),
    }
}

async fn a_try_at_a_busy_key_changes_nothing(fixture: &dyn Fixture) {
    let [a, ghost, c] = test_clients(fixture).await;
    a.takes().await;
    ghost.is_refused().await;
    assert_eq!(a.seen().await.waiters, 0);
    assert_eq!(a.releases().await, Release::Released);
    assert_eq!(c.inspects().await, None, "the queue is empty");
    c.takes().await;
}

async fn one_of_many_concurrent_tries_wins(fixture: &dyn Fixture) {
    let test_clients: [TestClient; 16] = test_clients(fixture).await;
    let answers = join_all(test_clients.iter().map(TestClient::tries)).await;
    let granted = answers.iter().filter(|answer| matches!(answer, Acquire::Granted { .. })).count();
    let busy = answers.iter().filter(|answer| matches!(answer, Acquire::Busy(_))).count();
    assert_eq!(granted + busy, 16, "{answers:?}");
    // Claims to several nodes may split their votes, so that no claim has a majority.
    let may_split = test_clients[0].backend.capabilities().fresh_holders;
    assert!(granted == 1 || may_split && granted == 0, "{answers:?}");
}

async fn keys_are_independent(fixture: &dyn Fixture) {
    let [first] = test_clients(fixture).await;
    let others: Vec<_> = (0..20).map(|_| first.with_new_key()).collect();
    first.takes().await;
    for other in &others {
        other.takes().await;
    }
    assert_eq!(first.releases().await, Release::Released);
    for other in &others {
        assert_eq!(other.releases().await, Release::Released, "{} was not released", other.key);
    }
}

/// A number that loses increments if two tasks overlap.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    async fn add_one(&self) {
        let seen = self.0.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.0.store(seen + 1, Ordering::SeqCst);
    }
}

const TASKS: u64 = 64;
const THREADS: u64 = 8;
const ROUNDS: u64 = 8;
const A_SIXTEENTH_OF_A_PAUSE: Duration = Duration::from_millis(6);

async fn sixty_four_tasks_lose_no_increment(fixture: &dyn Fixture) {
    let counter = Arc::new(Counter::default());
    // Several tasks share a client, and there are several clients.
    let clients: [TestClient; 4] = test_clients(fixture).await;
    let mut tasks = JoinSet::new();
    for (_, client) in (0..TASKS).zip(clients.iter().cycle()) {
        let (client, counter) = (client.clone(), Arc::clone(&counter));
        tasks.spawn(async move { count(&client, &counter).await });
    }
    join_unless_one_panics(tasks).await;
    assert_eq!(counter.0.load(Ordering::SeqCst), TASKS * ROUNDS);
}

/// Waits for all tasks. The first panic ends the case, because what that task holds is never released.
pub(super) async fn join_unless_one_panics(mut tasks: JoinSet<()>) {
    while let Some(task) = tasks.join_next().await {
        if let Err(error) = task {
            resume_unwind(error.into_panic());
        }
    }
}

async fn threads_with_separate_runtimes_lose_no_increment(fixture: &dyn Fixture) {
    let (counter, key) = (Counter::default(), fresh_key());
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| count_in_a_thread(fixture, &key, &counter));
            }
        });
    });
    assert_eq!(counter.0.load(Ordering::SeqCst), THREADS * ROUNDS);
}

fn count_in_a_thread(fixture: &dyn Fixture, key: &Key, counter: &Counter) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let [client] = test_clients_for(fixture, key).await;
        count(&client, counter).await;
    });
}

async fn count(client: &TestClient, counter: &Counter) {
    let recorder = EventRecorder::new();
    client.backend.listen(recorder.clone());
    for _ in 0..ROUNDS {
        let turn = wait_for_a_turn(client, &recorder).await;
        counter.add_one().await;
        assert_eq!(turn.releases().await, Release::Released, "held for much less than {LONG:?}");
    }
}

/// Waits in the queue if there is one, and otherwise polls.
pub(super) async fn wait_for_a_turn(client: &TestClient, recorder: &EventRecorder) -> TestClient {
    let mut turn = client.new_attempt();
    let mut intent = Intent::Enqueue;
    let mut pause = Duration::from_millis(1);
    loop {
        let answer = turn.backend.acquire(&turn.claim(intent)).await.answer;
        let is_outrun = |unknown: &Unknown| unknown.nodes().iter().all(|node| node.fault == Fault::Busy);
        if client.backend.capabilities().fresh_holders && answer.as_ref().is_err_and(is_outrun) {
            // Others have changed the key again and again, and what was begun ends here.
            turn.releases().await;
            (turn, intent) = (client.new_attempt(), Intent::Enqueue);
            continue;
        }
        match expect_known(answer) {
            Acquire::Granted { .. } => return turn,
            Acquire::Queued { .. } => intent = Intent::Poll,
            Acquire::Busy(_) if client.backend.capabilities().fresh_holders => turn = client.new_attempt(),
            Acquire::Busy(_) => intent = Intent::Enqueue,
            Acquire::Gone | Acquire::Conflict(_) => (turn, intent) = (client.new_attempt(), Intent::Enqueue),
        }
        let handed = |event: &Event| matches!(event, Event::Handed { holder, .. } if *holder == turn.holder.id);
        if client.backend.capabilities().fresh_holders {
            // Without a queue, concurrent attempts would collide again, so each pauses for a different time.
            let sixteenths = char::from(turn.holder.id.hex()[0]).to_digit(16).unwrap_or(0);
            tokio::time::sleep(A_SIXTEENTH_OF_A_PAUSE * (sixteenths + 1)).await;
            continue;
        }
        recorder.wait_for(pause, |event| handed(event).then_some(())).await;
        pause = (pause * 2).min(Duration::from_millis(16));
    }
}
