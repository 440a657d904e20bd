use crate::Fixture;
use crate::deadline::in_time;
use fencelock_core::{
    Acquire, Backend, Claim, Downgrade, Eviction, Expiry, FencingToken, Holder, HolderId, HolderInfo, Holders, Holding,
    Intent, Key, Mode, Occupant, Occupied, Owner, Release, Renew, Renewal, Ttl, Unknown,
};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any case: only a release or an eviction ends such a hold.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A hold that a case lets expire.
pub(crate) const SHORT: Duration = Duration::from_millis(300);
/// Longer than [`SHORT`] by more than the clock resolution of any server.
pub(crate) const PAST_SHORT: Duration = Duration::from_millis(400);
/// A waiter stays alive for at least this long without a poll, and so does the hand-off of a long lease.
pub(crate) const ALIVE: Duration = Duration::from_secs(2);
/// The number of polls of a waiter: each dead waiter in front of it costs some seconds.
const MAX_POLLS: u32 = 80;
/// The maximum difference between the milliseconds of the server and of this process.
pub(crate) const CLOCK_RESOLUTION: Duration = Duration::from_millis(25);

/// One attempt to hold one key, through one client.
#[derive(Debug, Clone)]
pub(crate) struct TestClient {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) key: Key,
    pub(crate) holder: Holder,
    pub(crate) ttl: Duration,
    pub(crate) mode: Mode,
}

/// Clients for one new key, each with its own backend and a long lease.
pub(crate) async fn test_clients<const N: usize>(fixture: &dyn Fixture) -> [TestClient; N] {
    test_clients_for(fixture, &fresh_key()).await
}

/// Clients for this key.
pub(crate) async fn test_clients_for<const N: usize>(fixture: &dyn Fixture, key: &Key) -> [TestClient; N] {
    let mut test_clients = Vec::new();
    for _ in 0..N {
        test_clients.push(TestClient {
            backend: fixture.backend().await,
            key: key.clone(),
            holder: fresh_holder(),
            ttl: LONG,
            mode: Mode::Exclusive,
        });
    }
    test_clients.try_into().expect("as many as were made")
}

/// A key that no other case uses.
pub(crate) fn fresh_key() -> Key {
    key(&format!("case-{}", fresh_id()))
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("the suite's own names are names")
}

pub(crate) fn fresh_id() -> HolderId {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    HolderId::from_bytes(bytes)
}

fn fresh_holder() -> Holder {
    let owner = Owner::new("suite", std::process::id(), Some("conformance case")).expect("a short label");
    Holder { id: fresh_id(), owner }
}

pub(crate) fn ttl(span: Duration) -> Ttl {
    Ttl::new(span).expect("the suite's own TTLs are TTLs")
}

/// Returns the answer. Panics on `Unknown`, because the suite injects no faults.
pub(crate) fn expect_known<T>(answer: Result<T, Unknown>) -> T {
    answer.unwrap_or_else(|unknown| panic!("the result is unknown: {unknown}"))
}

/// The attempt.
impl TestClient {
    /// The same attempt with another TTL.
    pub(crate) fn for_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// The same attempt in another mode.
    pub(crate) fn in_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// A new attempt through the same client.
    pub(crate) fn new_attempt(&self) -> Self {
        Self { holder: fresh_holder(), ..self.clone() }
    }

    /// A new attempt through the same client, for a new key.
    pub(crate) fn with_new_key(&self) -> Self {
        Self { key: fresh_key(), ..self.new_attempt() }
    }

    /// The same attempt through another client.
    pub(crate) async fn on_another_client(&self, fixture: &dyn Fixture) -> Self {
        Self { backend: fixture.backend().await, ..self.clone() }
    }

    pub(crate) fn claim(&self, intent: Intent) -> Claim {
        Claim::new(self.key.clone(), self.holder.clone(), ttl(self.ttl), intent).with_mode(self.mode)
    }

    /// This attempt, as the only holder.
    pub(crate) fn holders(&self) -> Holders {
        Holders::one(Occupant::Holder(self.holder.clone()))
    }
}

/// Requests.
impl TestClient {
    pub(crate) async fn claims(&self, intent: Intent) -> Acquire {
        expect_known(self.backend.acquire(&self.claim(intent)).await.answer)
    }

    pub(crate) async fn tries(&self) -> Acquire {
        self.claims(Intent::Try).await
    }

    pub(crate) async fn enqueues(&self) -> Acquire {
        self.claims(Intent::Enqueue).await
    }

    pub(crate) async fn polls(&self) -> Acquire {
        self.claims(Intent::Poll).await
    }

    /// After a request that was not answered in time, a release may have been sent twice, so its result is unknown once.
    pub(crate) async fn releases(&self) -> Release {
        let release = async || self.backend.release(&self.key, &self.holder.id).await;
        match release().await {
            Ok(answer) => answer,
            Err(_) => expect_known(release().await),
        }
    }

    pub(crate) async fn renews(&self) -> Renew {
        let mut answers = self.backend.renew(&[self.renewal()]).await;
        assert_eq!(answers.len(), 1, "one answer per renewal");
        expect_known(answers.remove(0))
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal::new(self.key.clone(), self.holder.id, ttl(self.ttl))
    }

    pub(crate) async fn inspects(&self) -> Option<Holding> {
        expect_known(self.backend.inspect(&self.key).await)
    }

    pub(crate) async fn lists(&self) -> Option<Holding> {
        if !self.backend.capabilities().lists {
            return self.inspects().await;
        }
        let mut found = expect_known(self.backend.list().await);
        found.retain(|holding| holding.key == self.key);
        assert!(found.len() <= 1, "listed more than once: {found:?}");
        found.pop()
    }

    pub(crate) async fn downgrades(&self) -> Downgrade {
        expect_known(self.backend.downgrade(&self.renewal()).await)
    }

    pub(crate) async fn evicts(&self, seen: &Holding) -> Eviction {
        expect_known(self.backend.evict(seen).await)
    }
}

/// Requests with an expected answer.
impl TestClient {
    /// Acquires a free key. Its lease may expire on the way: a quorum grants no such lease.
    pub(crate) async fn takes(&self) -> FencingToken {
        in_time(self.ttl, async { self.granted(self.tries().await) }).await
    }

    /// Polls, and expects that it holds the key.
    pub(crate) async fn still_holds(&self) -> FencingToken {
        self.granted(self.polls().await)
    }

    /// Polls, and expects that it holds the key by the grant with this fence.
    pub(crate) async fn still_holds_with(&self, fence: FencingToken) {
        self.is_granted_again(&self.polls().await, fence);
    }

    /// Expects that a repeated claim has the same grant. A node of a quorum that answers only now may have greater tokens than those
    /// that answered before.
    pub(crate) fn is_granted_again(&self, answer: &Acquire, fence: FencingToken) {
        let Acquire::Granted { tokens } = answer else {
            panic!("{} should hold {}: {answer:?}", self.holder.id, self.key)
        };
        let may_be_greater = self.backend.capabilities().fresh_holders && tokens.last() > fence;
        assert!(may_be_greater || *tokens == fence.into(), "{}: {fence} and then {tokens:?}", self.key);
    }

    fn granted(&self, answer: Acquire) -> FencingToken {
        match answer {
            Acquire::Granted { tokens } => tokens.last(),
            other => panic!("{} should be granted to {}: {other:?}", self.key, self.holder.id),
        }
    }

    /// Tries a key that another client holds.
    pub(crate) async fn is_refused(&self) -> Occupied {
        match self.tries().await {
            Acquire::Busy(occupied) => occupied,
            other => panic!("{} should be busy for {}: {other:?}", self.key, self.holder.id),
        }
    }

    /// Polls, and expects that it neither has nor gets the key. A backend without a queue may report the holder.
    pub(crate) async fn is_unknown(&self) {
        let answer = self.polls().await;
        let is_busy = !self.backend.capabilities().queues && matches!(answer, Acquire::Busy(_));
        assert!(answer == Acquire::Gone || is_busy, "{} is unknown: {answer:?}", self.holder.id);
    }

    /// Enqueues, and expects this many waiters in front.
    pub(crate) async fn is_queued(&self, expected: u32) -> Occupied {
        match self.enqueues().await {
            Acquire::Queued { ahead, occupied, .. } if ahead == expected => occupied,
            other => panic!("{} should have {expected} waiters in front: {other:?}", self.holder.id),
        }
    }

    /// Claims, and expects that it conflicts with the class in which the key is in use.
    pub(crate) async fn conflicts(&self, intent: Intent, present: Mode) {
        let answer = self.claims(intent).await;
        let conflicts = matches!(answer, Acquire::Conflict(mode) if mode.same_class(present));
        assert!(conflicts, "{} should conflict with {present} of {}: {answer:?}", self.mode, self.key);
    }

    /// Polls until it is granted the key, while time passes.
    pub(crate) async fn polls_until_granted(&self, fixture: &dyn Fixture) -> FencingToken {
        for _ in 0..MAX_POLLS {
            let answer = in_time(ALIVE, async {
                fixture.let_time_pass(Duration::from_millis(200)).await;
                let answer = self.polls().await;
                assert_ne!(answer, Acquire::Gone, "a waiter that polls stays in the queue");
                answer
            })
            .await;
            if !matches!(answer, Acquire::Queued { .. }) {
                return self.granted(answer);
            }
        }
        panic!("{} was not granted the key within {MAX_POLLS} times 200 ms", self.holder.id)
    }

    pub(crate) async fn seen(&self) -> Holding {
        self.inspects().await.unwrap_or_else(|| panic!("{} should be held", self.key))
    }

    /// The only hold of this key.
    pub(crate) async fn hold(&self) -> HolderInfo {
        let seen = self.seen().await;
        assert_eq!(seen.holders.count(), 1, "an exclusive lock has one holder: {seen:?}");
        seen.holders.into_first()
    }

    /// The remaining time of the current hold of this key.
    pub(crate) async fn time_left(&self) -> Duration {
        match self.hold().await.expiry {
            Expiry::In(left) => left,
            Expiry::Never => panic!("{} should expire", self.key),
        }
    }
}
