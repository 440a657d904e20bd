//! Many tasks at once: none reads while another writes, and no more permits are in use than there are.

use crate::Fixture;
use crate::case::{Case, Need, case_for};
use crate::cases::exclusion::{join_unless_one_panics, wait_for_a_turn};
use crate::cases::permits::permits;
use crate::event_recorder::EventRecorder;
use crate::test_client::{TestClient, test_clients};
use fencelock_core::{Mode, Release};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::task::JoinSet;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case_for(&[Need::Shared], readers_never_overlap_a_writer),
        case_for(&[Need::Permits], no_more_permits_are_in_use_than_there_are),
    ]
}

const TASKS: usize = 32;
const ROUNDS: usize = 6;

/// What the holders have in use at the moment: 1 for a reader, and so much that nothing is left for a writer.
#[derive(Debug, Default)]
struct InUse {
    now: AtomicI64,
    most: AtomicI64,
}

impl InUse {
    /// Uses so much for some moments.
    async fn take(&self, amount: i64, limit: i64) {
        let before = self.now.fetch_add(amount, Ordering::SeqCst);
        self.most.fetch_max(before + amount, Ordering::SeqCst);
        assert!(before + amount <= limit, "{before} of {limit} in use, and {amount} more");
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(amount, Ordering::SeqCst);
    }
}

/// Tasks with these modes, each of which uses a part of `limit`.
async fn crowd(fixture: &dyn Fixture, limit: i64, modes: &[(Mode, i64)]) -> Arc<InUse> {
    let clients: [TestClient; 4] = test_clients(fixture).await;
    let in_use = Arc::new(InUse::default());
    let mut tasks = JoinSet::new();
    for ((_, client), (mode, amount)) in (0..TASKS).zip(clients.iter().cycle()).zip(modes.iter().cycle()) {
        let (client, in_use, amount) = (client.clone().in_mode(*mode), Arc::clone(&in_use), *amount);
        tasks.spawn(async move {
            let recorder = EventRecorder::new();
            client.backend.listen(recorder.clone());
            for _ in 0..ROUNDS {
                let turn = wait_for_a_turn(&client, &recorder).await;
                in_use.take(amount, limit).await;
                assert_eq!(turn.releases().await, Release::Released);
            }
        });
    }
    join_unless_one_panics(tasks).await;
    assert_eq!(clients[0].inspects().await, None);
    in_use
}

async fn readers_never_overlap_a_writer(fixture: &dyn Fixture) {
    const ALL: i64 = 1000;
    crowd(fixture, ALL, &[(Mode::Shared, 1), (Mode::Shared, 1), (Mode::Exclusive, ALL), (Mode::Shared, 1)]).await;
}

async fn no_more_permits_are_in_use_than_there_are(fixture: &dyn Fixture) {
    let in_use = crowd(fixture, 5, &[(permits(1, 5), 1), (permits(2, 5), 2), (permits(4, 5), 4)]).await;
    assert!(in_use.most.load(Ordering::SeqCst) > 1, "nothing was held together");
}
