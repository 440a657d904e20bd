//! Finds the node of a key, and follows redirections.

use super::map::{ClusterMap, NODES_MAX};
use super::{Cluster, PendingReply, map};
use crate::hash_slot::hash_slot;
use crate::server::Redis;
use crate::url::hosts::{Address, shown};
use fencelock_core::{
    Backend, BootClock, Clock, Fault, Key, Listener, Listeners, Moment, Reply, Request, Sent, Unknown, lock,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The pauses between retries of a request while its slot is moved; their sum is a third of a second. The move of a slot
/// with few keys takes some milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const TRIES: u32 = 6;
/// The nodes of a cluster need seconds to agree on a failover, so more frequent requests return nothing new.
const REFRESH_AT_MOST: Duration = Duration::from_millis(250);
/// The number of nodes that are queried for a map at the same time, and the time after which more nodes are queried: some may be
/// down, or partitioned from the rest.
const QUERIED: usize = 4;
const MORE_AFTER: Duration = Duration::from_millis(200);

/// The last query for a map.
#[derive(Debug, Default)]
pub(crate) struct Refresh {
    ended: Option<Moment>,
    failed: Option<Unknown>,
    /// The nodes that were named last.
    named: BTreeSet<Address>,
    /// The first node of the next query, so that the load is spread.
    turn: usize,
}

impl Cluster {
    /// Returns the node at this address, and marks it as in use.
    pub(crate) fn node(&self, address: &Address) -> Result<Arc<Redis>, Unknown> {
        let node = self.unused_node(address)?;
        Ok(Arc::clone(lock(&self.nodes).entry(address.clone()).or_insert(node)))
    }

    /// A node for one request. This does not mark it as in use.
    pub(crate) fn unused_node(&self, address: &Address) -> Result<Arc<Redis>, Unknown> {
        if let Some(node) = lock(&self.nodes).get(address) {
            return Ok(Arc::clone(node));
        }
        let node = self.url.target.node_of(&self.view, address).and_then(Redis::at);
        let node = node.map_err(|error| Unknown::new(&self.url.name, Fault::Other, error.to_string()))?;
        let listener: Arc<dyn Listener> = Arc::<Listeners>::clone(&self.listeners);
        node.listen(listener);
        Ok(Arc::new(node))
    }

    /// Sends a request to the node that serves the key. A node that does not serve it executes nothing and redirects the request
    /// to another node.
    pub(crate) async fn at_owner(&self, key: &Key, request: Request<'_>) -> Reply {
        let after_connecting = async |node: Arc<Redis>| match node.link.session().await {
            Ok(_) => match node.call(request).await {
                Reply::Unknown(cause) => (Sent::AtOnce, Err(cause)),
                reply => (Sent::AtOnce, Ok(reply)),
            },
            Err(cause) => (Sent::Never, Err(cause)),
        };
        self.send_to_owner(key, after_connecting).await.1.into()
    }

    /// The same for a request that says itself when it was sent.
    pub(crate) async fn send_to_owner<T: Send, F: Future<Output = (Sent, Result<T, Unknown>)> + Send>(
        &self,
        key: &Key,
        request: impl Fn(Arc<Redis>) -> F + Send,
    ) -> (Sent, Result<T, Unknown>) {
        let slot = self.slot(key);
        let mut tries = 0;
        loop {
            let (address, node) = match self.owner(slot).await {
                Ok(owner) => owner,
                Err(cause) => return (Sent::Never, Err(cause)),
            };
            let (sent, cause) = match self.watched(&address, request(node)).await {
                (sent, Err(cause)) => (sent, cause),
                answer => return answer,
            };
            tries += 1;
            if tries > TRIES || !self.helps_to_repeat(slot, &address, &cause, sent == Sent::Never).await {
                return (sent, Err(self.explained(slot, cause)));
            }
            if tries > 1 || self.view.owner(slot).as_ref() == Some(&address) {
                tokio::time::sleep(jittered(FIRST_PAUSE * 2_u32.pow(tries - 1))).await;
            }
        }
    }

    /// The hash slot of a lock.
    pub(crate) fn slot(&self, key: &Key) -> u16 {
        hash_slot(&self.url.target.redis_key(key))
    }

    /// A request that is cancelled before its reply may have waited for a failed node. So the node is suspect until it replies.
    pub(crate) async fn watched<T>(&self, node: &Address, request: impl Future<Output = T> + Send) -> T {
        let mut pending = PendingReply { cluster: self, node, since: Some(Instant::now()) };
        let answer = request.await;
        pending.since = None;
        answer
    }

    pub(crate) async fn owner(&self, slot: u16) -> Result<(Address, Arc<Redis>), Unknown> {
        let mut owner = self.view.owner(slot);
        if owner.as_ref().is_none_or(|owner| lock(&self.suspects).contains(owner)) {
            let refreshed = self.refresh().await;
            owner = self.view.owner(slot);
            if owner.is_none() {
                refreshed?;
            }
        }
        let unassigned = || Unknown::new(&self.url.name, Fault::Busy, format!("no node serves hash slot {slot}"));
        let address = owner.ok_or_else(unassigned)?;
        let node = self.node(&address)?;
        Ok((address, node))
    }

    /// Whether the request may be repeated and a retry may succeed: it was not executed, or it is `repeatable`. After a failure, the
    /// next request for this node fetches a new map.
    pub(crate) async fn helps_to_repeat(
        &self,
        slot: u16,
        address: &Address,
        cause: &Unknown,
        repeatable: bool,
    ) -> bool {
        if cause.is_moved() {
            return true;
        }
        if cause.is_permanent() {
            return false;
        }
        lock(&self.suspects).insert(address.clone());
        if !repeatable {
            return false;
        }
        // Another node may serve the slot by now.
        self.refresh().await.is_ok() && self.view.owner(slot).is_some_and(|owner| owner != *address)
    }

    /// The error of a node about a slot that is being moved does not contain the slot.
    pub(crate) fn explained(&self, slot: u16, cause: Unknown) -> Unknown {
        if !cause.is_moved() {
            return cause;
        }
        let to = self.view.importing(slot).map(|to| format!(" to {}", shown(&to))).unwrap_or_default();
        let node = cause.nodes().first().map_or(self.url.name.as_str(), |node| node.node.as_str());
        let why = format!(
            "hash slot {slot} is being moved{to}: nothing in it can be locked or released until that ends; `redis-cli --cluster fix` \
             completes a move that was interrupted"
        );
        Unknown::new(node, Fault::Moved, why)
    }

    /// Fetches a new map, unless it was fetched recently. Concurrent callers share the result.
    pub(crate) async fn refresh(&self) -> Result<(), Unknown> {
        let requested = BootClock.now();
        let mut refresh = self.refresh.lock().await;
        if refresh.ended.is_some_and(|ended| ended >= requested || requested.since(ended) < REFRESH_AT_MOST) {
            return refresh.failed.clone().map_or(Ok(()), Err);
        }
        refresh.failed = self.query_nodes(&mut refresh).await.err();
        refresh.ended = Some(BootClock.now());
        refresh.failed.clone().map_or(Ok(()), Err)
    }

    /// Fetches a new map.
    pub(crate) async fn refresh_now(&self) -> Result<(), Unknown> {
        let mut refresh = self.refresh.lock().await;
        self.query_nodes(&mut refresh).await
    }

    async fn query_nodes(&self, refresh: &mut Refresh) -> Result<(), Unknown> {
        let mut candidates = self.url.seeds.clone();
        for known in self.view.map().masters().into_iter().chain(refresh.named.iter().cloned()) {
            if !candidates.contains(&known) {
                candidates.push(known);
            }
        }
        refresh.turn = (refresh.turn + 1) % candidates.len();
        candidates.rotate_left(refresh.turn);
        let (answer, queried) = self.query(&candidates).await?;
        // A node that is connected to only a part of the cluster may not list the other nodes.
        if answer.is_ok || refresh.named.len() + answer.nodes.len() > NODES_MAX {
            refresh.named.clear();
        }
        refresh.named.extend(answer.nodes);
        let masters = answer.map.masters();
        self.view.replace(answer.map);
        self.keep(&masters, &refresh.named, queried);
        lock(&self.suspects).clear();
        Ok(())
    }

    /// The first map from a node that is connected to a majority of the masters; if there is none, the map with the most slots.
    async fn query(&self, candidates: &[Address]) -> Result<(ClusterMap, Vec<(Address, Arc<Redis>)>), Unknown> {
        let (mut questions, mut queried, mut causes) = (FuturesUnordered::new(), Vec::new(), Vec::new());
        let (mut best, mut more) = (None::<ClusterMap>, candidates.chunks(QUERIED));
        loop {
            for address in more.next().unwrap_or_default() {
                let node = self.unused_node(address)?;
                queried.push((address.clone(), Arc::clone(&node)));
                questions.push(async move { map::query(&node).await });
            }
            let until = Instant::now() + MORE_AFTER;
            loop {
                let next = questions.next();
                let next = if more.len() == 0 { next.await } else { timeout_at(until, next).await.unwrap_or_default() };
                let Some(answer) = next else { break };
                match answer {
                    Ok(answer) if answer.is_ok && answer.slots() > 0 => return Ok((answer, queried)),
                    Ok(answer) if best.as_ref().is_none_or(|best| best.slots() < answer.slots()) => best = Some(answer),
                    Ok(_) => {}
                    Err(cause) => causes.extend(cause.nodes().to_vec()),
                }
            }
            if more.len() == 0 && questions.is_empty() {
                break;
            }
        }
        match best {
            Some(answer) if answer.slots() > 0 => Ok((answer, queried)),
            Some(_) => {
                let why = "the nodes that answer serve no slots";
                Err(Unknown::new(&self.url.name, Fault::Busy, why))
            }
            None => Err(Unknown::of_nodes(causes)),
        }
    }
}

/// A random duration from half to one and a half of `time`, so that clients do not send their requests at the same time.
fn jittered(time: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    time / 2 + time.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
