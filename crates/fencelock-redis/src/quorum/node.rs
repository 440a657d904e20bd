use fencelock_core::quorum::{HealthChange, NodeHealth};
use fencelock_core::{Fault, HolderId, Key, Moment, QuorumNode, Span, Unknown};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Any node may take this long, unless the user says otherwise: less is a pause of a garbage collector or of a scheduler.
pub(super) const SHORTEST_LIMIT: Duration = Duration::from_millis(100);
/// A probe that was not answered by then will not be.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// One node of a quorum, and what its last answers say of it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) backend: Arc<dyn QuorumNode>,
    /// It is waited for this long at least.
    pub(super) shortest_limit: Duration,
    health: Mutex<NodeHealth>,
    /// The times of its health count from here.
    created: Instant,
    /// The claims that are under way to it.
    claims: Mutex<HashMap<HolderId, watch::Receiver<()>>>,
}

/// A claim that is under way. A release waits for its end.
#[derive(Debug)]
pub(super) struct InFlight {
    node: Arc<Node>,
    holder: HolderId,
    ended: watch::Sender<()>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut claims = lock(&self.node.claims);
        if claims.get(&self.holder).is_some_and(|claim| claim.same_channel(&self.ended.subscribe())) {
            claims.remove(&self.holder);
        }
    }
}

impl Node {
    pub(super) fn new(backend: Arc<dyn QuorumNode>, shortest_limit: Duration) -> Self {
        let (health, claims) = (Mutex::default(), Mutex::default());
        Self { backend, shortest_limit, health, created: Instant::now(), claims }
    }

    /// How long to wait for an answer that is worth waiting for `most`.
    pub(super) fn limit(&self, most: Duration) -> Duration {
        lock(&self.health).limit(most, self.shortest_limit)
    }

    /// Why there is no use in asking it now, if so.
    pub(super) fn down(&self) -> Option<Unknown> {
        lock(&self.health).down().cloned()
    }

    /// What it answers within the limit.
    pub(super) async fn with_timeout<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Unknown> {
        let begun = Instant::now();
        let none = || Unknown::new(self.backend.name(), Fault::Timeout, format!("none within {}", Span(limit)));
        let answer = timeout(limit, call).await.unwrap_or_else(|_| Err(none()));
        self.note(begun.elapsed(), answer.as_ref().err());
        answer
    }

    /// It has answered after `took`, or has failed.
    pub(super) fn note(&self, took: Duration, failure: Option<&Unknown>) {
        let change = lock(&self.health).on_answer(took, failure, self.now());
        self.log(change, failure);
    }

    /// Checks in the background whether a node that is left out answers again, if that is due.
    pub(super) fn probe(self: &Arc<Self>, key: &Key) {
        if !lock(&self.health).begin_probe(self.now()) {
            return;
        }
        let (node, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move {
            let answer = timeout(PROBE_TIMEOUT, node.backend.inspect(&key)).await;
            // A node that refuses is well.
            let answered = answer.is_ok_and(|answer| answer.map_or_else(|cause| cause.is_refusal(), |_| true));
            let change = lock(&node.health).on_probe(answered, node.now());
            node.log(change, None);
        });
    }

    fn log(&self, change: Option<HealthChange>, cause: Option<&Unknown>) {
        let Some(change) = change else { return };
        let (node, cause) = (self.backend.name(), cause.map(tracing::field::display));
        match change {
            HealthChange::LeftOut => tracing::warn!(node, cause, "left out until it answers again"),
            HealthChange::Recovered => tracing::info!(node, "answers again"),
            HealthChange::Refuses => tracing::warn!(cause, "a node takes no part"),
        }
    }

    fn now(&self) -> Moment {
        Moment::default() + self.created.elapsed()
    }

    /// Marks that a claim of this holder is under way, until the mark is dropped.
    pub(super) fn in_flight(self: &Arc<Self>, holder: HolderId) -> InFlight {
        let (ended, claim) = watch::channel(());
        lock(&self.claims).insert(holder, claim);
        InFlight { node: Arc::clone(self), holder, ended }
    }

    /// Whether a claim of this holder is under way.
    pub(super) fn is_claiming(&self, holder: &HolderId) -> bool {
        lock(&self.claims).contains_key(holder)
    }

    /// Until no claim of this holder is under way: a release that overtakes its claim would free nothing.
    pub(super) async fn quiet(&self, holder: &HolderId) {
        let claim = lock(&self.claims).get(holder).cloned();
        if let Some(mut claim) = claim {
            // Nothing is ever sent: it ends with the claim.
            let _ = claim.changed().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
