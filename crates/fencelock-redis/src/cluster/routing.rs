//! Finds the node of a key, and the node after it when the key has moved.

use super::Cluster;
use crate::redis::{Address, ClusterMap, Redis, shown};
use fencelock_core::{BootClock, Clock, Fault, Key, Moment, Unknown, hash_slot};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

/// A request is repeated this often before its caller has to decide. A slot that is moved is usually done by then.
const TRIES: u32 = 10;
/// A slot with few keys is moved in some milliseconds. A quarter of a second, together.
const PAUSE: Duration = Duration::from_millis(15);
/// The nodes of a cluster agree on a fail-over in seconds, so asking them more often tells nothing.
const REFRESH_AT_MOST: Duration = Duration::from_millis(250);
/// The number of nodes that are asked for a map at the same time: some may be down, or may be partitioned from the rest.
const ASKED: usize = 4;

/// The last question for a map.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    ended: Option<Moment>,
    failed: Option<Unknown>,
    /// The nodes that were named last.
    named: Vec<Address>,
    /// Where to begin next time, so that no node is always the first.
    turn: usize,
}

impl Cluster {
    /// Sends a request to the node that serves the key. A node that does not serve it has executed nothing, and the request is
    /// repeated at the node that it names.
    pub(super) async fn at_owner<T: Send, F: Future<Output = Result<T, Unknown>> + Send>(
        &self,
        key: &Key,
        request: impl Fn(Arc<Redis>) -> F + Send,
    ) -> Result<T, Unknown> {
        let slot = hash_slot(&self.url.target.wire(key));
        let mut tries = 0;
        loop {
            let (address, node) = self.owner(slot).await?;
            let cause = match request(node).await {
                Ok(answer) => return Ok(answer),
                Err(cause) => cause,
            };
            tries += 1;
            if tries > TRIES || !self.helps_to_repeat(slot, &address, &cause).await {
                return Err(self.explained(slot, cause));
            }
            if tries > 1 || self.view.owner(slot).as_ref() == Some(&address) {
                tokio::time::sleep(jittered(PAUSE)).await;
            }
        }
    }

    pub(super) async fn owner(&self, slot: u16) -> Result<(Address, Arc<Redis>), Unknown> {
        let mut owner = self.view.owner(slot);
        if owner.is_none() || self.is_stale.load(Ordering::Relaxed) {
            let refreshed = self.refresh().await;
            owner = self.view.owner(slot).or(owner);
            if owner.is_none() {
                refreshed?;
            }
        }
        let unassigned =
            || Unknown::new(&self.url.name, Fault::Busy, format!("no node serves hash slot {slot}")).unsent();
        let address = owner.ok_or_else(unassigned)?;
        let node = self.nodes.at(&address, &self.url, &self.view)?;
        Ok((address, node))
    }

    /// Whether the request was not executed and another try may succeed. A failure makes the next request ask for a new map.
    pub(super) async fn helps_to_repeat(&self, slot: u16, address: &Address, cause: &Unknown) -> bool {
        if is_moved(cause) {
            return true;
        }
        if cause.is_permanent() {
            return false;
        }
        self.is_stale.store(true, Ordering::Relaxed);
        if !cause.is_unsent() {
            return false;
        }
        // The node cannot be reached. Another one may serve the slot by now.
        self.refresh().await.is_ok() && self.view.owner(slot).is_some_and(|owner| owner != *address)
    }

    /// What a node says about a slot that is being moved names no slot.
    pub(super) fn explained(&self, slot: u16, cause: Unknown) -> Unknown {
        if !is_moved(&cause) {
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

    /// Asks for a new map. Callers that ask at the same time share the answer.
    pub(super) async fn refresh(&self) -> Result<(), Unknown> {
        let asked = BootClock.now();
        let mut refresh = self.refresh.lock().await;
        if refresh.ended.is_some_and(|ended| ended >= asked || asked.since(ended) < REFRESH_AT_MOST) {
            return refresh.failed.clone().map_or(Ok(()), Err);
        }
        self.is_stale.store(false, Ordering::Relaxed);
        let answer = self.ask_nodes(&mut refresh).await;
        refresh.failed = answer.err();
        refresh.ended = Some(BootClock.now());
        refresh.failed.clone().map_or(Ok(()), Err)
    }

    async fn ask_nodes(&self, refresh: &mut Refresh) -> Result<(), Unknown> {
        let mut candidates = self.url.seeds.clone();
        candidates.extend(refresh.named.iter().filter(|named| !self.url.seeds.contains(named)).cloned());
        refresh.turn = (refresh.turn + 1) % candidates.len();
        candidates.rotate_left(refresh.turn);
        let mut causes = Vec::new();
        for some in candidates.chunks(ASKED) {
            match self.ask_some(some).await {
                Ok((answer, asked)) => {
                    refresh.named.clone_from(&answer.nodes);
                    let masters: Vec<Address> = answer.map.masters().into_iter().cloned().collect();
                    self.view.replace(answer.map);
                    self.nodes.keep(&masters, &refresh.named, asked);
                    return Ok(());
                }
                Err(unknown) => causes.extend(unknown.nodes().to_vec()),
            }
        }
        Err(Unknown::of_nodes(causes).unsent())
    }

    /// The first answer of a node that sees most of the cluster; if there is none, any answer.
    async fn ask_some(&self, some: &[Address]) -> Result<(ClusterMap, Vec<(Address, Arc<Redis>)>), Unknown> {
        let (mut questions, mut asked, mut causes) = (JoinSet::new(), Vec::new(), Vec::new());
        for address in some {
            let node = self.nodes.unused(address, &self.url, &self.view)?;
            asked.push((address.clone(), Arc::clone(&node)));
            questions.spawn(async move { node.cluster_map().await });
        }
        let mut any = None;
        while let Some(answer) = questions.join_next().await {
            match answer {
                Ok(Ok(answer)) if answer.is_ok => return Ok((answer, asked)),
                Ok(Ok(answer)) => any = Some(answer),
                Ok(Err(cause)) => causes.extend(cause.nodes().to_vec()),
                Err(_) => {}
            }
        }
        any.map(|answer| (answer, asked)).ok_or_else(|| Unknown::of_nodes(causes))
    }
}

pub(super) fn is_moved(cause: &Unknown) -> bool {
    !cause.nodes().is_empty() && cause.nodes().iter().all(|node| node.fault == Fault::Moved)
}

/// From half to one and a half of a time, so that clients do not ask together.
fn jittered(time: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    time / 2 + time.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
