//! A lock on several independent servers, held while a majority holds it.
//!
//! A claim is sent to all nodes at once, with one proposal for the fencing token, and the deciding vote ends the round. The
//! rules in [`fencelock_core::quorum`] make all decisions, and its documentation explains why the tokens are ordered. Later replies are handled in the background. If a round fails or is dropped, its lock is
//! released on every node, each after the claim has ended there.
//!
//! The time limit of a node follows its response times. After three failures in a row, a node is left out until a
//! background probe succeeds, unless fewer than a majority would be left.
//!
//! **A node that may have lost its data** (restarted, flushed, failed over, or new) does not grant until every lease
//! that it may have granted has expired: its *quarantine*, which each Redis node enforces by a marker
//! (`scripts/quarantine.rs`). A round counts the node as unreachable. Renewals and releases are served meanwhile, because
//! they create no lock. The marker also contains the set of nodes. If two clients are configured with different sets,
//! all sets but one fail, so there are never two locks on one key.
//!
//! **Shared locks**: a node grants shared locks together, but not together with an exclusive one, so readers and writers exclude
//! each other by majority. Permits are refused: [`Quorum::modes`](Backend::capabilities).
//!
//! # What it does not guarantee
//! - **Nodes of other kinds** are trusted not to have lost grants: [`Quorum::trusting_empty`].
//! - **First come, first served**: there is no queue. The nodes that were busy notify the waiters, and the first
//!   claim gets the key.
//!
//! # Files
//! `claim`, and `calls` for the others; `ballot` is what claims and downgrades share. `holdings` and `inspection` read and end holds,
//! `completions` read and write completions. `startup_check` checks the nodes.

mod ballot;
mod calls;
mod claim;
mod completions;
mod doctor;
mod holdings;
mod inspection;
mod node;
mod startup_check;
mod url;

use crate::server::Redis;
use crate::server::node_setup::members;
use fencelock_core::quorum::{NodePlan, QuorumConfig, left_out};
use fencelock_core::{
    Backend, BootClock, BoxFuture, Capabilities, Claim, ClaimReply, Clock, ConnectError, Drift, Fault, Intent, Invalid,
    Key, Listener, Listeners, Modes, Quorum as Size, Reply, Request, Sent, Unknown,
};
use futures_util::FutureExt;
use futures_util::future::join_all;
use node::{Node, SHORTEST_LIMIT};
use startup_check::check_nodes;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::{OnceCell, mpsc};
pub use url::QuorumScheme;
pub(crate) use url::node_urls;
use url::of_nodes;

/// A lock on a majority of independent nodes. It must be used inside a tokio runtime.
///
/// A node that loses data must not grant too early: after a restart without an append-only file, a flush, or a failover, a
/// second client could get the lock. [`Quorum::connect`] prevents this by a quarantine; [`Quorum::trusting_empty`] does
/// not.
#[derive(Debug)]
pub struct Quorum {
    pub(crate) nodes: Arc<[Arc<Node>]>,
    pub(crate) settings: Arc<QuorumConfig>,
    clock: Arc<dyn Clock>,
    /// The greatest fence that any node has granted. Nodes with different fences grant the same token if the proposal
    /// is greater.
    seen: Arc<AtomicU64>,
    listeners: Listeners,
    /// What must be checked before the first claim or inspection, and whether it has passed.
    startup_check: Option<(Vec<Arc<Redis>>, OnceCell<()>)>,
}

/// Replies of the nodes by node number, in the order of arrival. The channel closes after the last one.
type NodeReplies<T> = mpsc::UnboundedReceiver<(usize, T)>;

impl Quorum {
    /// A quorum of the Redis servers at these URLs, each with a quarantine: a new, restarted or flushed server grants
    /// nothing until every lease that it may have lost has ended. The options are those of [`Redis::open`], and
    /// `max_ttl=` must be the same for all.
    ///
    /// A majority must answer; the others join when they become available.
    ///
    /// # Errors
    /// [`ConnectError::Url`] for an invalid URL and a server that is listed twice. [`ConnectError::Unknown`] if
    /// fewer than a majority answer, or if any of them belongs to another set ([`fencelock_core::Fault::Misconfigured`]).
    ///
    /// # Cancel safety
    /// The check only reads. The first claim starts the quarantine of new servers.
    pub async fn connect(urls: &[String]) -> Result<Self, ConnectError> {
        let nodes: Vec<Arc<Redis>> = members(urls)?.into_iter().map(Arc::new).collect();
        check_nodes(Size::new(nodes.len())?, &nodes).await?;
        Ok(of_nodes(nodes.into_iter())?)
    }

    /// Creates a quorum of these nodes; three or five are usual.
    ///
    /// The nodes are trusted not to have lost grants. Keep a node that may have lost some out of the quorum for the
    /// longest TTL in use. [`Quorum::connect`] does this for Redis servers.
    ///
    /// # Errors
    /// [`Invalid`] for no nodes, for more than 64, for one that cannot be a node or is listed twice, and if leases expire only on
    /// some of the nodes.
    pub fn trusting_empty(nodes: Vec<Arc<dyn Backend>>) -> Result<Self, Invalid> {
        Self::with_clock(nodes, Arc::new(BootClock), Drift::default())
    }

    /// As [`Quorum::trusting_empty`], with another clock and another bound for clock drift.
    ///
    /// # Errors
    /// As [`Quorum::trusting_empty`].
    pub fn with_clock(nodes: Vec<Arc<dyn Backend>>, clock: Arc<dyn Clock>, drift: Drift) -> Result<Self, Invalid> {
        let size = Size::new(nodes.len())?;
        for (number, node) in nodes.iter().enumerate() {
            if !node.capabilities().node {
                return Err(Invalid::new(format!("{} cannot be a node of a quorum", node.name())));
            }
            if nodes[..number].iter().any(|other| Arc::ptr_eq(other, node)) {
                return Err(Invalid::new(format!(
                    "{} is listed twice: the nodes of a quorum must be different",
                    node.name()
                )));
            }
        }
        let expiring = nodes.iter().filter(|node| node.capabilities().expires).count();
        if expiring != 0 && expiring != nodes.len() {
            return Err(Invalid::new(
                "locks expire on some of the nodes only: all nodes of a quorum must be of one kind",
            ));
        }
        let names: Vec<_> = nodes.iter().map(|node| node.name()).collect();
        let backend = name_of_all(&names);
        let (expires, shortest_limit) = (expiring > 0, SHORTEST_LIMIT);
        let settings = QuorumConfig { size, drift, expires, names, backend, shortest_limit };
        Ok(Self::from_parts(nodes, settings, clock))
    }

    fn from_parts(nodes: Vec<Arc<dyn Backend>>, settings: QuorumConfig, clock: Arc<dyn Clock>) -> Self {
        let limit = settings.shortest_limit;
        Self {
            nodes: nodes.into_iter().map(|node| Arc::new(Node::new(node, limit))).collect(),
            settings: Arc::new(settings),
            clock,
            seen: Arc::default(),
            listeners: Listeners::default(),
            startup_check: None,
        }
    }

    /// Sets the minimum time limit for the reply of a node; the default is 100 ms. Normal latency is learned; set this
    /// only for distant or irregularly slow nodes. With a limit of more than a tenth of the TTL, an unreachable node
    /// shortens the time that a holder can use its lease. The `timeout=` of a node (1 s by default) ends a request even
    /// if it is shorter; the `node_timeout=` of a `redlock://` URL sets both.
    ///
    /// # Errors
    /// [`Invalid`] if it is less than 1 ms or more than a minute.
    pub fn node_timeout(mut self, limit: Duration) -> Result<Self, Invalid> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&limit) {
            return Err(Invalid::new("the timeout of a node must be between 1 ms and 1 min"));
        }
        // No request has been sent yet, so no learned limits are lost.
        let nodes = self.nodes.iter().map(|node| Arc::new(Node::new(Arc::clone(&node.backend), limit)));
        self.nodes = nodes.collect();
        self.settings = Arc::new(QuorumConfig { shortest_limit: limit, ..QuorumConfig::clone(&self.settings) });
        Ok(self)
    }

    pub(crate) fn longest_ttl(&self) -> Option<Duration> {
        self.nodes.iter().filter_map(|node| node.backend.capabilities().longest_ttl).min()
    }

    /// Checks the nodes before the first claim or inspection. No claim is sent before that.
    async fn enter(&self) -> Result<(), Unknown> {
        let Some((nodes, passed)) = &self.startup_check else { return Ok(()) };
        let check = async || match check_nodes(self.settings.size, nodes).await {
            Ok(()) => Ok(()),
            Err(ConnectError::Unknown(cause)) => Err(cause),
            // A server that is listed twice is a permanent error.
            Err(invalid) => Err(Unknown::new("redlock://", Fault::Misconfigured, invalid.to_string())),
        };
        passed.get_or_try_init(check).await.copied()
    }

    /// The time limit for each node, and which nodes are left out. Those are probed.
    fn plan(&self, key: &Key, limit: impl Fn(&Node) -> Duration) -> Vec<NodePlan> {
        let down = self.nodes.iter().map(|node| node.down()).collect();
        let plan = self.nodes.iter().zip(left_out(self.settings.size, down)).map(|(node, left_out)| {
            if left_out.is_some() {
                node.probe(key);
            }
            NodePlan { limit: limit(node), left_out }
        });
        plan.collect()
    }

    /// Sends a request to all nodes at once. Each request runs until its reply or its limit, even if the caller stops
    /// waiting.
    fn send_to_all<T: TryFrom<Reply, Error = Unknown> + Send + 'static>(
        &self,
        key: &Key,
        limit: impl Fn(&Node) -> Duration,
        request: Request<'_>,
    ) -> NodeReplies<Result<T, Unknown>> {
        self.ask(&self.plan(key, limit), |node| request.send_copy(node).map(T::try_from))
    }

    /// The same for what is more than one request.
    fn ask<T, F>(&self, plan: &[NodePlan], question: impl Fn(Arc<dyn Backend>) -> F) -> NodeReplies<Result<T, Unknown>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Unknown>> + Send + 'static,
    {
        let (answers, inbox) = mpsc::unbounded_channel();
        let mut asked = Vec::new();
        for (number, NodePlan { limit, left_out }) in plan.iter().cloned().enumerate() {
            let answers = answers.clone();
            if let Some(cause) = left_out {
                let _ = answers.send((number, Err(cause)));
                continue;
            }
            let node = Arc::clone(&self.nodes[number]);
            let question = question(Arc::clone(&node.backend));
            asked.push(async move {
                let answer = node.with_timeout(limit, question).await;
                let _ = answers.send((number, answer));
            });
        }
        tokio::spawn(join_all(asked));
        inbox
    }

    /// Shared locks, if all nodes support them. Never permits: a majority for each permit does not limit the number of
    /// holders. With three nodes and two permits, each node counts two of three holders.
    fn modes(&self) -> Modes {
        let mut modes = Modes::default();
        modes.shared = self.nodes.iter().all(|node| node.backend.capabilities().modes.shared);
        modes
    }

    fn has_completions(&self) -> bool {
        self.nodes.iter().all(|node| node.backend.capabilities().completions)
    }

    async fn enter_and_claim(&self, claim: &Claim) -> ClaimReply {
        if let Err(cause) = self.enter().await {
            return ClaimReply::not_sent(cause);
        }
        let sent = Sent::At(self.clock.now());
        let answer = match claim.intent {
            Intent::Poll => self.poll(claim).await,
            Intent::Try | Intent::Enqueue => claim::claim(self, claim).await,
        };
        ClaimReply { sent, answer }
    }

    async fn watch_all(&self, key: &Key) -> Result<(), Unknown> {
        let mut answers = self.send_to_all(key, |node| node.limit(Duration::from_secs(1)), Request::Watch(key));
        let mut causes = Vec::new();
        while let Some((_, answer)) = answers.recv().await {
            match answer {
                Ok(()) => return Ok(()),
                Err(cause) => causes.extend_from_slice(cause.nodes()),
            }
        }
        Err(Unknown::of_nodes(causes))
    }
}

impl Backend for Quorum {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        facts.expires = self.settings.expires;
        facts.cross_process = self.nodes.iter().any(|node| node.backend.capabilities().cross_process);
        (facts.portable, facts.evicts, facts.fresh_holders) = (true, true, true);
        facts.modes = self.modes();
        (facts.lists, facts.completions, facts.mode_changes) = (true, self.has_completions(), facts.modes.shared);
        facts.longest_ttl = self.longest_ttl();
        facts
    }

    fn name(&self) -> String {
        self.settings.backend.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(&listener);
        for node in self.nodes.iter() {
            node.backend.listen(Arc::clone(&listener));
        }
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            Request::Claim(claim, _) => Reply::of(|| self.enter_and_claim(claim)),
            Request::Renew(renewals) => Reply::of(|| self.renew_all(renewals)),
            Request::Release(key, holder) => Reply::of(|| self.release_all(key, *holder)),
            Request::Inspect(key) => Reply::of(async || {
                self.enter().await?;
                self.inspect_all(key).await.holding(key)
            }),
            Request::Watch(key) => Reply::of(|| self.watch_all(key)),
            Request::Downgrade(hold, _) if self.modes().shared => Reply::of(|| self.downgrade_all(hold)),
            Request::List => Reply::of(|| self.list_all()),
            Request::Evict(seen) => Reply::of(|| self.evict_all(seen)),
            Request::TryOut(key) => Reply::of(move || doctor::try_nodes(self, key)),
            Request::Diagnose => Reply::of(|| doctor::report(self)),
            _ if !self.has_completions() => Box::pin(ready(request.unsupported(self.name()))),
            Request::ReadCompletion(key) => Reply::of(|| completions::read_stored(self, key)),
            Request::WriteCompletion(key, holder, done) => {
                Reply::of(|| completions::write_stored(self, key, holder, done))
            }
            Request::ConfirmCompletion(key, done) => Reply::of(|| completions::confirm_stored(self, key, done)),
            Request::ClearCompletion(key, seen) => Reply::of(|| completions::clear_stored(self, key, seen)),
            _ => Box::pin(ready(request.unsupported(self.name()))),
        }
    }

    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        let nodes = self.nodes.iter().map(|node| node.backend.reconnected()).collect::<Option<_>>()?;
        // A release needs no check.
        Some(Arc::new(Self::from_parts(nodes, QuorumConfig::clone(&self.settings), Arc::clone(&self.clock))))
    }
}

fn name_of_all(names: &[String]) -> String {
    for (scheme, of_nodes) in url::SCHEMES {
        let host = |name: &String| Some(name.strip_prefix(of_nodes)?.strip_prefix("://")?.to_owned());
        if let Some(hosts) = names.iter().map(host).collect::<Option<Vec<_>>>() {
            return format!("{scheme}://{}", hosts.join(","));
        }
    }
    format!("quorum of {}", names.join(", "))
}
