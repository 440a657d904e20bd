use crate::Place;
use crate::in_time::in_time;
use fencelock_core::{
    Acquire, Backend, Claim, Eviction, Expiry, FencingToken, Holder, HolderId, HolderInfo, Holders, Holding, Intent,
    Key, Occupant, Occupied, Owner, Release, Renew, Renewal, Ttl, Unknown,
};
use std::sync::Arc;
use std::time::Duration;

/// No case lasts so long: only a release or an eviction ends such a hold.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A hold that a case lets expire.
pub(crate) const SHORT: Duration = Duration::from_millis(300);
/// Longer than [`SHORT`] by more than any server's clock is coarse.
pub(crate) const PAST_SHORT: Duration = Duration::from_millis(400);
/// A waiter lives at least so long without a sign, and so does a hand-off of a long lease.
pub(crate) const ALIVE: Duration = Duration::from_secs(2);
/// How often a waiter asks for its turn: a dead one or two before it cost some seconds each.
const TURNS: u32 = 80;
/// By how much a server's count of milliseconds may differ from ours.
pub(crate) const GRAIN: Duration = Duration::from_millis(25);

/// One attempt to hold one key, through one client.
#[derive(Debug, Clone)]
pub(crate) struct Rival {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) key: Key,
    pub(crate) holder: Holder,
    pub(crate) ttl: Duration,
}

/// Rivals for one fresh key, each with a client of its own, all with long leases.
pub(crate) async fn rivals<const N: usize>(place: &dyn Place) -> [Rival; N] {
    rivals_for(place, &fresh_key()).await
}

/// Rivals for this key.
pub(crate) async fn rivals_for<const N: usize>(place: &dyn Place, key: &Key) -> [Rival; N] {
    let mut rivals = Vec::new();
    for _ in 0..N {
        rivals.push(Rival { backend: place.backend().await, key: key.clone(), holder: fresh_holder(), ttl: LONG });
    }
    rivals.try_into().expect("as many as were made")
}

/// A key that no other case has.
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

/// "Could not tell" has no place in a case: nothing fails here.
pub(crate) fn told<T>(answer: Result<T, Unknown>) -> T {
    answer.unwrap_or_else(|unknown| panic!("the place could not tell: {unknown}"))
}

/// The attempt itself.
impl Rival {
    /// The same with another length of lease.
    pub(crate) fn for_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Another attempt through the same client.
    pub(crate) fn afresh(&self) -> Self {
        Self { holder: fresh_holder(), ..self.clone() }
    }

    /// Another attempt through the same client, for another key.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { key: fresh_key(), ..self.afresh() }
    }

    /// The same attempt, going on through another client.
    pub(crate) async fn moved(&self, place: &dyn Place) -> Self {
        Self { backend: place.backend().await, ..self.clone() }
    }

    pub(crate) fn claim(&self, intent: Intent) -> Claim {
        Claim::new(self.key.clone(), self.holder.clone(), ttl(self.ttl), intent)
    }

    /// This attempt, as the only holder.
    pub(crate) fn holders(&self) -> Holders {
        Holders::one(Occupant::Holder(self.holder.clone()))
    }
}

/// What it asks.
impl Rival {
    pub(crate) async fn claims(&self, intent: Intent) -> Acquire {
        told(self.backend.acquire(&self.claim(intent)).await)
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

    pub(crate) async fn releases(&self) -> Release {
        told(self.backend.release(&self.key, &self.holder.id).await)
    }

    pub(crate) async fn renews(&self) -> Renew {
        let mut answers = self.backend.renew(&[self.renewal()]).await;
        assert_eq!(answers.len(), 1, "one renewal, one answer");
        told(answers.remove(0))
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal::new(self.key.clone(), self.holder.id, ttl(self.ttl))
    }

    pub(crate) async fn inspects(&self) -> Option<Holding> {
        told(self.backend.inspect(&self.key).await)
    }

    pub(crate) async fn lists(&self) -> Option<Holding> {
        let mut found = told(self.backend.list().await);
        found.retain(|holding| holding.key == self.key);
        assert!(found.len() <= 1, "listed more than once: {found:?}");
        found.pop()
    }

    pub(crate) async fn evicts(&self, seen: &Holding) -> Eviction {
        told(self.backend.evict(seen).await)
    }
}

/// What it expects.
impl Rival {
    /// Takes a free key.
    pub(crate) async fn takes(&self) -> FencingToken {
        self.granted(self.tries().await)
    }

    /// Is answered that it has the key.
    pub(crate) async fn has_it(&self) -> FencingToken {
        self.granted(self.polls().await)
    }

    fn granted(&self, answer: Acquire) -> FencingToken {
        match answer {
            Acquire::Granted { tokens } => tokens.last(),
            other => panic!("{} should be granted to {}: {other:?}", self.key, self.holder.id),
        }
    }

    /// Tries a key that somebody else has.
    pub(crate) async fn finds_it_busy(&self) -> Occupied {
        match self.tries().await {
            Acquire::Busy(occupied) => occupied,
            other => panic!("{} should be busy for {}: {other:?}", self.key, self.holder.id),
        }
    }

    /// Stands in line, or already does, with this many before it.
    pub(crate) async fn stands_in_line(&self, expected: u32) -> Occupied {
        match self.enqueues().await {
            Acquire::Queued { ahead, occupied, .. } if ahead == expected => occupied,
            other => panic!("{} should stand behind {expected}: {other:?}", self.holder.id),
        }
    }

    /// Asks from the line until its turn comes, while time passes.
    pub(crate) async fn waits_its_turn(&self, place: &dyn Place) -> FencingToken {
        for _ in 0..TURNS {
            let answer = in_time(ALIVE, async {
                place.let_time_pass(Duration::from_millis(200)).await;
                let answer = self.polls().await;
                assert_ne!(answer, Acquire::Gone, "it gives signs of life");
                answer
            })
            .await;
            if !matches!(answer, Acquire::Queued { .. }) {
                return self.granted(answer);
            }
        }
        panic!("the turn of {} has not come after {TURNS} times 200 ms", self.holder.id)
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

    /// The time left of the hold of this key, whoever has it.
    pub(crate) async fn time_left(&self) -> Duration {
        match self.hold().await.expiry {
            Expiry::In(left) => left,
            Expiry::Never => panic!("{} should end by itself", self.key),
        }
    }
}
