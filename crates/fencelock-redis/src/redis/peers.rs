//! The other servers of a list, for a claim at a server without a marker.
//!
//! The server may have been restarted empty; then its quarantine must start, or it would never serve again. Or it is new, and
//! listed by mistake: then it must not be marked, because it would belong to an unintended set. The other servers
//! decide between the two.

use super::link::Link;
use super::quarantine::MarkerState;
use fencelock_core::{BootClock, Clock, Fault, Moment, NodeFault, Unknown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long an answer is valid: all nodes of a new list ask at the same time.
const FRESH: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(crate) struct Peers {
    links: std::sync::Mutex<Vec<Weak<Link>>>,
    /// A server has confirmed that it belongs to this set, so the set is in use.
    set_up: AtomicBool,
    /// Why the last attempt was refused, and when. One caller asks, and all use its answer.
    refused: tokio::sync::Mutex<Option<(Moment, Unknown)>>,
}

impl Peers {
    /// Links the nodes of one list.
    pub(crate) fn link_all(links: &[Arc<Link>]) {
        let peers = Arc::new(Self::default());
        *peers.links.lock().unwrap_or_else(PoisonError::into_inner) = links.iter().map(Arc::downgrade).collect();
        for link in links {
            // It is set once, before the link is used.
            let _ = link.peers.set(Arc::clone(&peers));
        }
    }

    /// Whether a server without a marker may be marked: another server belongs to this set, or all of them answer and
    /// none has a marker.
    pub(crate) async fn may_mark(&self, unmarked: &Link) -> Result<(), Unknown> {
        if self.set_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut refused = self.refused.lock().await;
        if let Some((when, cause)) = &*refused
            && BootClock.now().since(*when) < FRESH
        {
            return Err(renamed(unmarked.node(), cause));
        }
        *refused = None;
        let mut causes = Vec::new();
        for (node, answer) in self.ask().await {
            match answer {
                Ok(MarkerState::Unmarked) => {}
                Ok(MarkerState::Serving | MarkerState::Quarantined(_) | MarkerState::Restarted) => {
                    self.set_up.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(cause) => causes.push((node, cause.is_permanent() && cause.is_refusal())),
            }
        }
        let Some(cause) = refusal(unmarked.node(), &causes) else { return Ok(()) };
        *refused = Some((BootClock.now(), cause.clone()));
        Err(cause)
    }

    async fn ask(&self) -> Vec<(String, Result<MarkerState, Unknown>)> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut asked = JoinSet::new();
        for link in links.iter().filter_map(Weak::upgrade) {
            asked.spawn(async move {
                // The waiting claim has a timeout too.
                let limit = link.target.limit / 2;
                let answer = timeout(limit, look(&link)).await;
                let silent = || Unknown::new(link.node(), Fault::Timeout, "");
                (link.node().to_owned(), answer.unwrap_or_else(|_| Err(silent())))
            });
        }
        asked.join_all().await
    }
}

async fn look(link: &Link) -> Result<MarkerState, Unknown> {
    let session = link.session(|| BootClock.now()).await?;
    match &link.target.quarantine {
        Some(quarantine) => link.inspect_marker(&session, quarantine).await,
        None => Ok(MarkerState::Unmarked),
    }
}

/// Why `unmarked` must not be marked; for the others, whether they belong to another set.
fn refusal(unmarked: &str, others: &[(String, bool)]) -> Option<Unknown> {
    let named = |of_another_set: bool| {
        let names =
            others.iter().filter(|(_, of_another)| *of_another == of_another_set).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(" and ")
    };
    let (of_others, silent) = (named(true), named(false));
    if !of_others.is_empty() {
        let why = format!("it has no marker, and {of_others} belongs to another set, so nothing was written");
        return Some(Unknown::new(unmarked, Fault::Misconfigured, why));
    }
    (!silent.is_empty()).then(|| {
        let why = format!(
            "it may have lost its locks: restarted, flushed or new. It is not marked before {silent} answers or another \
             node says that it belongs to this set; if the list is right, `fencelock init`"
        );
        Unknown::new(unmarked, Fault::Quarantined, why)
    })
}

fn renamed(node: &str, cause: &Unknown) -> Unknown {
    Unknown::of_nodes(cause.nodes().iter().map(|of| NodeFault::new(node, of.fault, &*of.detail)).collect())
}
