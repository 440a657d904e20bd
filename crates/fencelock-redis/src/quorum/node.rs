use fencelock_core::{Fault, HolderId, Key, QuorumNode, Span, Unknown};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Any node may take this long, unless the user says otherwise: less is a pause of a garbage collector or of a scheduler.
const SHORTEST_LIMIT: Duration = Duration::from_millis(100);
const LONGEST_LIMIT: Duration = Duration::from_secs(1);
/// A node that took the usual time so many times over does not answer any more.
const PATIENCE: u32 = 8;
/// After so many failures in a row a node is left alone, until a probe gets through.
const FAILURES: u32 = 3;
const FIRST_PROBE: Duration = Duration::from_millis(100);
const RAREST_PROBE: Duration = Duration::from_secs(5);
/// A request that was not answered by then will not be.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// One node of a quorum, and what its last answers say of it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) backend: Arc<dyn QuorumNode>,
    /// It is waited for this long at least.
    pub(super) shortest_limit: Duration,
    availability: Mutex<Availability>,
    /// The claims that are under way to it.
    claims: Mutex<HashMap<HolderId, watch::Receiver<()>>>,
}

#[derive(Debug, Default)]
struct Availability {
    failures: u32,
    cause: Option<Unknown>,
    /// How long an answer takes, the latest ones counting most.
    usual: Option<Duration>,
    probe_at: Option<Instant>,
    probe_pause: Duration,
    /// It was told in the log that it belongs to others.
    told_of_others: bool,
}

/// A claim that is under way. Whoever wants to release waits for its end.
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
    pub(super) fn new(backend: Arc<dyn QuorumNode>) -> Self {
        Self { backend, shortest_limit: SHORTEST_LIMIT, availability: Mutex::default(), claims: Mutex::default() }
    }

    /// How long to wait for an answer that is worth waiting for `most`: a tenth of a lease. What is learnt shortens it, but
    /// not after a failure, for then the node may just have become slower.
    pub(super) fn limit(&self, most: Duration) -> Duration {
        let shortest = self.shortest_limit;
        let most = most.clamp(shortest, LONGEST_LIMIT.max(shortest));
        let availability = lock(&self.availability);
        match availability.usual {
            Some(usual) if availability.failures == 0 => (usual * PATIENCE).clamp(shortest, most),
            _ => most,
        }
    }

    /// Why there is no use in asking it now, if so.
    pub(super) fn down(&self) -> Option<Unknown> {
        let availability = lock(&self.availability);
        availability.cause.clone().filter(|_| availability.failures >= FAILURES)
    }

    /// What it answers within the limit.
    pub(super) async fn with_timeout<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Unknown> {
        let begun = Instant::now();
        let answer = timeout(limit, call).await.unwrap_or_else(|_| Err(self.no_answer(limit)));
        self.note(begun, answer.as_ref().err());
        answer
    }

    /// Carries a call out to its end. `say` hears the answer; before a late one it hears that there was none in time.
    pub(super) async fn carried_out<T: Clone>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Unknown>>,
        say: impl Fn(Result<T, Unknown>),
    ) -> Result<T, Unknown> {
        let begun = Instant::now();
        let mut call = pin!(call);
        let answer = if let Ok(answer) = timeout(limit, call.as_mut()).await {
            self.note(begun, answer.as_ref().err());
            answer
        } else {
            let unknown = self.no_answer(limit);
            self.note(begun, Some(&unknown));
            say(Err(unknown));
            timeout(RELEASE_TIMEOUT, call).await.unwrap_or_else(|_| Err(self.no_answer(RELEASE_TIMEOUT)))
        };
        say(answer.clone());
        answer
    }

    fn no_answer(&self, limit: Duration) -> Unknown {
        Unknown::new(self.backend.name(), Fault::Timeout, format!("none within {}", Span(limit)))
    }

    fn note(&self, begun: Instant, failure: Option<&Unknown>) {
        let mut availability = lock(&self.availability);
        if let Some(cause) = failure.filter(|unknown| unknown.is_permanent() && unknown.is_refusal())
            && !availability.told_of_others
        {
            // A majority of other nodes may go on without it, and nobody would know.
            availability.told_of_others = true;
            tracing::warn!(%cause, "a node takes no part");
        }
        // A node that refuses is well: it is asked again, for it will not say by itself that its quarantine is over.
        if let Some(unknown) = failure.filter(|unknown| !unknown.is_refusal()) {
            availability.failures = availability.failures.saturating_add(1);
            if availability.failures == FAILURES {
                tracing::warn!(node = self.backend.name(), cause = %unknown, "left out until it answers again");
                availability.probe_pause = FIRST_PROBE;
                availability.probe_at = Some(Instant::now() + FIRST_PROBE);
            }
            availability.cause = Some(unknown.clone());
            return;
        }
        let took = begun.elapsed();
        availability.usual = Some(availability.usual.map_or(took, |usual| (usual * 7 + took) / 8));
        availability.recover(&self.backend.name());
    }

    /// Looks whether a node that was left out answers again, if it is time for that. Nobody waits for it.
    pub(super) fn probe(self: &Arc<Self>, key: &Key) {
        {
            let mut availability = lock(&self.availability);
            let now = Instant::now();
            if availability.failures < FAILURES || availability.probe_at.is_none_or(|at| now < at) {
                return;
            }
            // None until this one is over.
            availability.probe_at = None;
        }
        let (node, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move {
            let answer = timeout(RELEASE_TIMEOUT, node.backend.inspect(&key)).await;
            let mut availability = lock(&node.availability);
            // One that refuses is well, see [`Node::note`].
            if answer.is_ok_and(|answer| answer.map_or_else(|cause| cause.is_refusal(), |_| true)) {
                availability.recover(&node.backend.name());
                availability.usual = None;
                return;
            }
            availability.probe_pause = (availability.probe_pause * 2).min(RAREST_PROBE);
            availability.probe_at = Some(Instant::now() + availability.probe_pause);
        });
    }

    /// Marks that a claim of this holder is under way, until the mark is dropped.
    pub(super) fn in_flight(self: &Arc<Self>, holder: HolderId) -> InFlight {
        let (ended, claim) = watch::channel(());
        lock(&self.claims).insert(holder, claim);
        InFlight { node: Arc::clone(self), holder, ended }
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

impl Availability {
    fn recover(&mut self, node: &str) {
        if self.failures >= FAILURES {
            tracing::info!(node, "answers again");
        }
        self.failures = 0;
        self.cause = None;
        self.probe_at = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
