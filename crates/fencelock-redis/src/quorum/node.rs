use fencelock_core::quorum::{HealthChange, NodeHealth};
use fencelock_core::{Backend, Fault, HolderId, Key, Moment, Span, Unknown, lock};
use futures_util::FutureExt;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The default minimum limit of a node. Pauses of a garbage collector or scheduler are usually shorter.
pub(crate) const SHORTEST_LIMIT: Duration = Duration::from_millis(100);
/// A request is cancelled this long after it has timed out, because no reply is expected any more.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(5);
/// The time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A node of a quorum, and its health.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) backend: Arc<dyn Backend>,
    /// The minimum time limit for a reply.
    pub(crate) shortest_limit: Duration,
    health: Mutex<NodeHealth>,
    /// The origin of the times in `health`.
    created: Instant,
    /// The ends of the claims in flight to this node. Not a `watch`, which wakes its receivers in random order: a simulation has the
    /// same order in every run.
    claims: Mutex<HashMap<HolderId, Arc<Notify>>>,
}

/// A claim in flight. A release waits for its end.
#[derive(Debug)]
pub(crate) struct InFlight {
    node: Arc<Node>,
    holder: HolderId,
    ended: Arc<Notify>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut claims = lock(&self.node.claims);
        if claims.get(&self.holder).is_some_and(|claim| Arc::ptr_eq(claim, &self.ended)) {
            claims.remove(&self.holder);
        }
        self.ended.notify_waiters();
    }
}

impl Node {
    pub(crate) fn new(backend: Arc<dyn Backend>, shortest_limit: Duration) -> Self {
        let (health, claims) = (Mutex::default(), Mutex::default());
        Self { backend, shortest_limit, health, created: Instant::now(), claims }
    }

    /// The name of the node without its scheme.
    pub(crate) fn address(&self) -> String {
        let name = self.backend.name();
        name.split_once("://").map_or(name.as_str(), |(_, address)| address).to_owned()
    }

    /// The time limit for a reply, at most `most`.
    pub(crate) fn limit(&self, most: Duration) -> Duration {
        lock(&self.health).limit(most, self.shortest_limit)
    }

    /// Why a request to this node would fail now; `None` if it may succeed.
    pub(crate) fn down(&self) -> Option<Unknown> {
        lock(&self.health).down().cloned()
    }

    /// Awaits a reply within the limit.
    pub(crate) async fn with_timeout<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Unknown> {
        let begun = Instant::now();
        let answer = self.within(limit, call).await;
        self.note(begun.elapsed(), answer.as_ref().err());
        answer
    }

    /// Tells the reply to a request. If it is late, it tells first that there was none.
    pub(crate) async fn answers<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, Unknown>>,
        mut tell: impl FnMut(Result<T, Unknown>),
    ) {
        let (mut request, mut is_late) = (pin!(request), true);
        let in_time = async {
            let answer = request.as_mut().await;
            is_late = false;
            answer
        };
        tell(self.with_timeout(limit, in_time).await);
        if is_late {
            tell(request.await);
        }
    }

    /// Awaits a reply within this time, which says nothing about the health of the node. A backend that panics has not answered: the
    /// requests to the other nodes are in the same task.
    pub(crate) async fn within<T>(
        &self,
        span: Duration,
        call: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Unknown> {
        let unknown = |fault, detail| Err(Unknown::new(self.backend.name(), fault, detail));
        match timeout(span, AssertUnwindSafe(call).catch_unwind()).await {
            Ok(answer) => answer.unwrap_or_else(|_| unknown(Fault::Other, "its client has panicked".to_owned())),
            Err(_) => unknown(Fault::Timeout, format!("timeout {}", Span(span))),
        }
    }

    /// Records a reply after `took`, or a failure.
    pub(crate) fn note(&self, took: Duration, failure: Option<&Unknown>) {
        let change = lock(&self.health).on_answer(took, failure, self.now());
        self.log(change, failure);
    }

    /// Probes a node that is left out, in the background, if a probe is due.
    pub(crate) fn probe(self: &Arc<Self>, key: &Key) {
        if !lock(&self.health).begin_probe(self.now()) {
            return;
        }
        let (node, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move {
            let question = timeout(PROBE_TIMEOUT, node.backend.inspect(&key));
            // The next probe depends on the end of this one, even if a backend panics.
            let answer = AssertUnwindSafe(question).catch_unwind().await;
            // A refusal shows that the node is up.
            let is_up = |answer: Result<_, Unknown>| answer.map_or_else(|cause| cause.is_refusal(), |_| true);
            let answered = answer.is_ok_and(|answer| answer.is_ok_and(is_up));
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

    /// Registers a claim of this holder as in flight, until the returned value is dropped.
    pub(crate) fn in_flight(self: &Arc<Self>, holder: HolderId) -> InFlight {
        let ended = Arc::new(Notify::new());
        lock(&self.claims).insert(holder, Arc::clone(&ended));
        InFlight { node: Arc::clone(self), holder, ended }
    }

    /// Waits until no claim of this holder is in flight: a release that overtakes its claim would free nothing.
    pub(crate) async fn quiet(&self, holder: &HolderId) {
        let ended = lock(&self.claims).get(holder).map(|claim| Arc::clone(claim).notified_owned());
        if let Some(ended) = ended {
            ended.await;
        }
    }
}
