//! A lock on several independent servers, held while a majority holds it.
//!
//! A claim is sent to all nodes at once, with one proposal for the fencing token, and the deciding vote ends the round. The
//! calls in [`fencelock_core::quorum`] make all decisions, and its documentation explains why the tokens are ordered;
//! `call_task` does the I/O. Later replies are handled in the background. If a round fails or is dropped, its lock is
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
//! `call_task` carries out a call of core, and `calls` has the requests of each. `holdings` and `inspection` read and end holds,
//! `completions` read and write completions. `startup_check` checks the nodes.

mod call_task;
mod calls;
mod completions;
mod doctor;
mod holdings;
mod inspection;
mod node;
mod scheme;
mod startup_check;
mod url;

use crate::server::Redis;
use crate::server::node_setup::members;
use fencelock_core::quorum::{NodePlan, Settings, left_out};
use fencelock_core::{
    Admin, Answer, Backend, BackendReport, BootClock, BoxFuture, Capabilities, Claim, ClaimReply, ClearCompletion,
    Clock, Completion, CompletionRead, Completions, ConnectError, CountedSuccess, Downgrade, Drift, Eviction, Finding,
    HolderId, Holding, Intent, Invalid, Key, Listener, Listeners, ModeChanges, Modes, Quorum as Size, QuorumNode,
    Release, Renew, Renewal, Sent, Unknown, WriteCompletion,
};
use node::{Node, SHORTEST_LIMIT};
pub use scheme::QuorumScheme;
use startup_check::{StartupCheck, check_nodes};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::mpsc;
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
    pub(crate) settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    /// The greatest fence that any node has reported. Nodes with different fences grant the same token if the proposal
    /// is greater.
    seen: Arc<AtomicU64>,
    listeners: Listeners,
    /// The checks that must pass before the first claim or inspection.
    startup_check: Option<StartupCheck>,
}

/// Replies of the nodes by node number, in the order of arrival. The channel closes after the last one.
type NodeReplies<T> = mpsc::UnboundedReceiver<(usize, Result<T, Unknown>)>;

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
    /// [`Invalid`] for no nodes, for more than 64, for a node that is listed twice, and if leases expire only on some
    /// of the nodes.
    pub fn trusting_empty(nodes: Vec<Arc<dyn QuorumNode>>) -> Result<Self, Invalid> {
        Self::with_clock(nodes, Arc::new(BootClock), Drift::default())
    }

    /// As [`Quorum::trusting_empty`], with another clock and another bound for clock drift.
    ///
    /// # Errors
    /// As [`Quorum::trusting_empty`].
    pub fn with_clock(nodes: Vec<Arc<dyn QuorumNode>>, clock: Arc<dyn Clock>, drift: Drift) -> Result<Self, Invalid> {
        let size = Size::new(nodes.len())?;
        for (number, node) in nodes.iter().enumerate() {
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
        let settings = Settings { size, drift, expires, names, backend, shortest_limit };
        Ok(Self::from_parts(nodes, settings, clock))
    }

    fn from_parts(nodes: Vec<Arc<dyn QuorumNode>>, settings: Settings, clock: Arc<dyn Clock>) -> Self {
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
        self.settings = Arc::new(Settings { shortest_limit: limit, ..Settings::clone(&self.settings) });
        Ok(self)
    }

    pub(crate) fn longest_ttl(&self) -> Option<Duration> {
        self.nodes.iter().filter_map(|node| node.backend.capabilities().longest_ttl).min()
    }

    /// Checks the nodes before the first claim or inspection.
    async fn enter(&self) -> Result<(), Unknown> {
        match &self.startup_check {
            Some(check) => check.run(self.settings.size).await,
            None => Ok(()),
        }
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
    fn send_to_all<T, F>(
        &self,
        key: &Key,
        limit: impl Fn(&Node) -> Duration,
        question: impl Fn(Arc<dyn QuorumNode>) -> F,
    ) -> NodeReplies<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Unknown>> + Send + 'static,
    {
        let (answers, inbox) = mpsc::unbounded_channel();
        for (number, NodePlan { limit, left_out }) in self.plan(key, limit).into_iter().enumerate() {
            let answers = answers.clone();
            if let Some(cause) = left_out {
                let _ = answers.send((number, Err(cause)));
                continue;
            }
            let node = Arc::clone(&self.nodes[number]);
            let question = question(Arc::clone(&node.backend));
            tokio::spawn(async move {
                let answer = node.with_timeout(limit, question).await;
                let _ = answers.send((number, answer));
            });
        }
        inbox
    }

    /// Shared locks, if all nodes support them. Never permits: a majority for each permit does not limit the number of
    /// holders. With three nodes and two permits, each node counts two of three holders.
    fn modes(&self) -> Modes {
        let mut modes = Modes::default();
        modes.shared = self.nodes.iter().all(|node| node.backend.capabilities().modes.shared);
        modes
    }
}

impl Backend for Quorum {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        facts.expires = self.settings.expires;
        facts.cross_process = self.nodes.iter().any(|node| node.backend.capabilities().cross_process);
        (facts.portable, facts.evicts, facts.fresh_holders) = (true, true, true);
        facts.modes = self.modes();
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

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        Box::pin(async move {
            if let Err(cause) = self.enter().await {
                return ClaimReply::not_sent(cause);
            }
            let sent = Sent::At(self.clock.now());
            let answer = match claim.queueing.intent {
                Intent::Poll => self.poll(claim).await,
                Intent::Try | Intent::Enqueue => self.claim(claim).await,
            };
            ClaimReply { sent, answer }
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async move {
            let request = |node: Arc<dyn QuorumNode>| {
                let key = key.clone();
                async move { node.watch(&key).await }
            };
            let mut answers = self.send_to_all(key, |node| node.limit(Duration::from_secs(1)), request);
            let mut causes = Vec::new();
            while let Some((_, answer)) = answers.recv().await {
                match answer {
                    Ok(()) => return Ok(()),
                    Err(cause) => causes.extend(inspection::faults(&cause)),
                }
            }
            Err(Unknown::of_nodes(causes))
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(self.renew_all(renewals))
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(self.release_all(key, *holder))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async move {
            self.enter().await?;
            self.inspect_all(key).await.holding(key)
        })
    }

    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        let nodes = self.nodes.iter().map(|node| node.backend.node_reconnected()).collect::<Option<_>>()?;
        // A release needs no check.
        Some(Arc::new(Self::from_parts(nodes, Settings::clone(&self.settings), Arc::clone(&self.clock))))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn completions(&self) -> Option<&dyn Completions> {
        completions::has_completions(self).then_some(self)
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        self.modes().shared.then_some(self)
    }
}

impl Admin for Quorum {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(self.list_all())
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(self.evict_all(seen))
    }

    fn try_out<'a>(&'a self, key: Option<&'a Key>) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(doctor::try_nodes(self, key))
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        Box::pin(doctor::report(self))
    }
}

impl Completions for Quorum {
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        Box::pin(completions::read_stored(self, key))
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        Box::pin(completions::write_stored(self, key, *holder, completion))
    }

    fn confirm_completion<'a>(&'a self, key: &'a Key, done: &'a CountedSuccess) -> Answer<'a, ()> {
        Box::pin(completions::confirm_stored(self, key, done))
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        Box::pin(completions::clear_stored(self, key, seen))
    }
}

impl ModeChanges for Quorum {
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(self.downgrade_all(renewal))
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
