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
//! `map` and `view` are the slots. `routing` finds the node of a key, and the next one; `renewals`,
//! and `list` send requests to all of them.

mod doctor;
mod list;
pub(crate) mod map;
mod renewals;
mod routing;
mod url;
pub(crate) mod view;

use crate::server::{Redis, capabilities};
use crate::url::hosts::Address;
use crate::url::identity::identity;
use crate::url::password;
use fencelock_core::{
    Backend, BoxFuture, Capabilities, Claim, ClaimReply, ConnectError, Connecting, Event, Intent, Invalid, Key,
    Listener, Listeners, Reply, Request, Scheme, Unknown, UrlForm, lock,
};
use routing::Refresh;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use url::ClusterUrl;
use view::ClusterView;

/// Locks on a Redis Cluster. It must be used inside a tokio runtime.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) url: ClusterUrl,
    pub(crate) view: Arc<ClusterView>,
    /// Those that this client uses. Each connects with its first request.
    nodes: Mutex<HashMap<Address, Arc<Redis>>>,
    /// Each node sends its events to them.
    listeners: Arc<Listeners>,
    /// The nodes that have not replied since the last map, or have replied that the cluster is down. A request for one of them fetches
    /// a new map first.
    suspects: Mutex<HashSet<Address>>,
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
        if let Some(master) = cluster.view.map().masters().first() {
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
        let (nodes, listeners, suspects, refresh) = Default::default();
        Self { url, view, nodes, listeners, suspects, refresh }
    }

    /// Uses the nodes of a new map: disconnects nodes that are not in it, and keeps a queried node that serves slots.
    fn keep(&self, masters: &BTreeSet<Address>, named: &BTreeSet<Address>, queried: Vec<(Address, Arc<Redis>)>) {
        let is_dropped = {
            let mut used = lock(&self.nodes);
            let before = used.len();
            used.retain(|address, _| named.contains(address));
            let is_dropped = used.len() < before;
            for (address, node) in queried.into_iter().filter(|(address, _)| masters.contains(address)) {
                used.entry(address).or_insert(node);
            }
            is_dropped
        };
        if is_dropped {
            // Messages of the removed nodes are no longer received.
            self.listeners.send(&Event::Reset);
        }
    }

    async fn claim(&self, claim: &Claim) -> ClaimReply {
        // A node that redirects a claim has not executed it, so the last node decides when it was sent.
        let request = move |node: Arc<Redis>| async move {
            let reply = node.claim(claim, None).await;
            (reply.sent, reply.answer)
        };
        let (sent, answer) = self.send_to_owner(&claim.key, request).await;
        if claim.intent != Intent::Try && answer.as_ref().is_err_and(Unknown::is_moved) {
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
        self.listeners.add(&listener);
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
        self.view.owner_number(self.slot(key))
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        let owner = self.view.owner(self.slot(key)).and_then(|owner| lock(&self.nodes).get(&owner).cloned());
        owner.is_some_and(|node| node.link.is_tracking())
    }

    /// It uses the nodes that are known here, because the cluster may soon be unreachable.
    fn reconnected(&self) -> Option<Arc<dyn Backend>> {
        let view = ClusterView::default();
        view.replace(self.view.map());
        Some(Arc::new(Self::with_view(self.url.for_releases(), Arc::new(view))))
    }
}

/// `redis+cluster://` and `rediss+cluster://`.
#[derive(Debug)]
pub struct ClusterScheme;

impl Scheme for ClusterScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("redis+cluster://H1,H2,H3", "machines that share a Redis Cluster"),
                UrlForm::new("rediss+cluster://H1,H2,H3", "the same over TLS"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Cluster::open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Cluster::lazy(url)?) as _) })
    }

    fn identity(&self, url: &str, name: &str) -> String {
        identity(url, name)
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Ok(password::for_all(url, password))
    }
}

/// A scheduler may pause a process for this long, so a request that was cancelled sooner proves nothing.
const SHORTEST: Duration = Duration::from_millis(100);

/// Waits for a node, which is suspect if this is dropped before its reply.
struct PendingReply<'a> {
    cluster: &'a Cluster,
    node: &'a Address,
    /// `None` after the reply.
    since: Option<Instant>,
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= SHORTEST) {
            lock(&self.cluster.suspects).insert(self.node.clone());
        }
    }
}

#[cfg(test)]
mod suspects_tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_cancelled_after_a_long_wait_makes_its_node_suspect() {
        let (cluster, node) = (Cluster::lazy("redis+cluster://h").unwrap(), ("h".to_owned(), 1));
        let request = |span| cluster.watched(&node, tokio::time::sleep(span));
        let cancelled = |after| tokio::time::timeout(after, request(SHORTEST * 9));
        cancelled(SHORTEST / 2).await.unwrap_err();
        request(SHORTEST).await;
        assert!(!lock(&cluster.suspects).contains(&node));
        cancelled(SHORTEST).await.unwrap_err();
        assert!(lock(&cluster.suspects).contains(&node));
    }
}
