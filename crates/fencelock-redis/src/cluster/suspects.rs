use crate::url::hosts::Address;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A scheduler may pause a process for this long, so a request that was cancelled sooner proves nothing.
const SHORTEST: Duration = Duration::from_millis(100);

/// The nodes that have not replied since the last map, or have replied that the cluster is down.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<HashSet<Address>>);

/// A pending request. If it is cancelled, its node is suspect.
pub(crate) struct PendingRequest<'a> {
    pub(crate) suspects: &'a Suspects,
    pub(crate) node: &'a Address,
    pub(crate) begun: Instant,
    pub(crate) is_answered: bool,
}

impl Suspects {
    pub(crate) fn add(&self, node: &Address) {
        self.nodes().insert(node.clone());
    }

    pub(crate) fn has(&self, node: &Address) -> bool {
        self.nodes().contains(node)
    }

    pub(crate) fn clear(&self) {
        self.nodes().clear();
    }

    fn nodes(&self) -> MutexGuard<'_, HashSet<Address>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingRequest<'_> {
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.begun.elapsed() >= SHORTEST {
            self.suspects.add(self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_cancelled_after_a_long_wait_makes_its_node_suspect() {
        let (suspects, node) = (Suspects::default(), ("h".to_owned(), 1));
        let request = || PendingRequest { suspects: &suspects, node: &node, begun: Instant::now(), is_answered: false };
        let (answered, impatient, cancelled) = (request(), request(), request());
        drop(impatient);
        tokio::time::advance(SHORTEST).await;
        answered.answered();
        assert!(!suspects.has(&node));
        drop(cancelled);
        assert!(suspects.has(&node));
        suspects.clear();
        assert!(!suspects.has(&node));
    }
}
