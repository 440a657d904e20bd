//! Locks on a Redis Cluster.
//!
//! All keys of a lock are in one hash slot, and one node serves a slot. So each lock is on one server, and each node of the
//! cluster is a [`Redis`] with its own session, which is opened by the first request. This module finds the node with a map of
//! the slots. Any node returns the map, and a node that does not serve a slot corrects it. See `routing`.
//!
//! # While a slot is moved
//! A script names all keys of a lock, and some of these keys never exist. So while a slot is moved, a node rejects every
//! script for it with `TRYAGAIN` and executes nothing. During this time no lock of the slot is granted, handed over or released,
//! and requests are retried until the move has ended. Only renewals have another form, which names one key: see `renewals`.
//! After the move, the holders, the queue and the fence are on the new node.
//!
//! # What it does not guarantee
//! - **A failover may lose the last writes**, as with a master and replicas: `acks=N` makes this unlikely. There is no
//!   quarantine.
//!
//! # Files
//! `map` and `view` are the slots. `routing` finds the node of a key, and the next one; `nodes` and `suspects` are the nodes and those that may be gone; `renewals`,
//! and `list` send requests to all of them.

mod doctor;
mod list;
pub(crate) mod map;
mod nodes;
mod renewals;
mod routing;
mod scheme;
mod suspects;
mod url;
pub(crate) mod view;

use crate::server::raw::Server;
use crate::server::{Redis, capabilities};
use fencelock_core::{
    Backend, BoxFuture, Capabilities, Claim, ClaimReply, ConnectError, Intent, Invalid, Key, Listener, Reply, Request,
    Unknown,
};
use map::not_a_cluster;
use nodes::Nodes;
use routing::Refresh;
pub use scheme::ClusterScheme;
use std::future::ready;
use std::sync::Arc;
use suspects::Suspects;
use url::ClusterUrl;
use view::ClusterView;

/// Locks on a Redis Cluster. It must be used inside a tokio runtime.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) url: ClusterUrl,
    pub(crate) view: Arc<ClusterView>,
    nodes: Nodes,
    /// A request for one of these nodes fetches a new map first.
    suspects: Suspects,
    refresh: tokio::sync::Mutex<Refresh>,
}

impl Cluster {
    /// Parses `redis+cluster://[user:password@]host[:port],...[?option=value&...]`, or `rediss+cluster://` for TLS to all nodes,
    /// and connects. The URL lists some of the nodes, and these return the others. The options are those of
    /// [`Redis::open`](crate::Redis::open) without `quarantine=` and its options.
    ///
    /// # Errors
    /// [`ConnectError::Url`] for an invalid URL, [`ConnectError::Unknown`] if none of the listed nodes answers, or if they are not
    /// nodes of a cluster.
    pub async fn open(url: &str) -> Result<Self, ConnectError> {
        let cluster = Self::lazy(url)?;
        cluster.refresh().await?;
        // All nodes have the same capabilities. They are read from a master, because the URL may list replicas only.
        if let Some(master) = cluster.view.masters().first() {
            cluster.node(master)?.link.session().await?;
        }
        Ok(cluster)
    }

    /// Like [`Cluster::open`], but connects with the first request.
    ///
    /// # Errors
    /// [`Invalid`] for an invalid URL.
    pub fn lazy(url: &str) -> Result<Self, Invalid> {
        Ok(Self::with_view(ClusterUrl::parse(url)?, Arc::default()))
    }

    fn with_view(url: ClusterUrl, view: Arc<ClusterView>) -> Self {
        Self {
            url,
            view,
            nodes: Nodes::default(),
            suspects: Suspects::default(),
            refresh: tokio::sync::Mutex::default(),
        }
    }

    /// The masters of the cluster of a URL, without a runtime.
    pub(crate) fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
        let url = ClusterUrl::parse(url)?;
        let (view, mut last) = (Arc::default(), String::new());
        let server = |address| Ok(Server::of_cluster(url.node(&view, address)?));
        for seed in &url.seeds {
            let seed = server(seed)?;
            match seed.masters() {
                Ok(masters) => return masters.iter().map(server).collect(),
                Err(error) => last = not_a_cluster(seed.name(), &error).unwrap_or_else(|| error.to_string()),
            }
        }
        Err(Invalid::new(format!("no node of {} lists the others: {last}", url.name)))
    }

    async fn claim(&self, claim: &Claim) -> ClaimReply {
        // A node that redirects a claim has not executed it, so the last node decides when it was sent.
        let request = move |node: Arc<Redis>| async move {
            let reply = node.claim(claim, None).await;
            (reply.sent, reply.answer)
        };
        let (sent, answer) = self.send_to_owner(&claim.key, request).await;
        if claim.queueing.intent != Intent::Try && answer.as_ref().is_err_and(Unknown::is_moved) {
            self.keep_position(claim).await;
        }
        ClaimReply { sent, answer }
    }

    /// A poll keeps a waiter alive, even while its slot is moved and no lock can be granted.
    async fn keep_position(&self, claim: &Claim) {
        let slot = self.slot(&claim.key);
        let wait = move |node: Arc<Redis>, importing: Option<Arc<Redis>>| async move {
            node.wait_singly(claim, importing.as_deref()).await
        };
        // If this fails, the next poll renews the position.
        if let Err(cause) = Box::pin(self.singly(slot, wait)).await {
            tracing::debug!(key = %claim.key, "the position in the queue was not renewed: {cause}");
        }
    }
}

impl Backend for Cluster {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn name(&self) -> String {
        self.url.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.nodes.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            Request::Claim(claim, _) => Reply::of(|| self.claim(claim)),
            Request::Renew(renewals) => Reply::of(|| self.renew_all(renewals)),
            Request::List => Reply::of(|| list::list_all(self)),
            Request::TryOut(key) => Reply::of(move || doctor::try_nodes(self, key)),
            Request::Diagnose => Reply::of(|| doctor::report(self)),
            _ => match request.key() {
                Some(key) => Reply::of(move || self.at_owner(key, request)),
                None => Box::pin(ready(request.unsupported(self.name()))),
            },
        }
    }

    fn renewal_group(&self, key: &Key) -> u32 {
        self.view.owner_number(&self.url.target.redis_key(key))
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        let owner = self.view.owner(self.slot(key)).and_then(|owner| self.nodes.known(&owner));
        owner.is_some_and(|node| node.link.is_tracking())
    }

    /// It uses the nodes that are known here, because the cluster may soon be unreachable.
    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Self::with_view(self.url.for_releases(), Arc::new(self.view.copy()))))
    }
}
