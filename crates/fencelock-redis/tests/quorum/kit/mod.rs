//! Nodes that are slow, unresponsive, unreachable, or have their own clock, with direct access for tests.

mod node;

pub(crate) use fencelock_testkit::claim;
pub(crate) use node::{Node, Road};

use fencelock::backends::{Quorum, TokioClock};
use fencelock_core::{Acquire, Backend, Claim, Drift, FencingToken, Occupied, Release, Unknown};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A quorum with a clock that the test controls, and its nodes.
pub(crate) struct TestQuorum {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) quorum: Arc<Quorum>,
}

impl TestQuorum {
    /// Inside `#[tokio::test(start_paused = true)]`.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with_skews(&vec![0; nodes])
    }

    /// The wall clock of each node is ahead by this number of seconds.
    pub(crate) fn with_skews(seconds: &[u64]) -> Self {
        let clock = TokioClock::starting_now();
        let nodes: Vec<_> = seconds.iter().map(|ahead| Node::new(clock, Duration::from_secs(*ahead))).collect();
        let backends = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Backend>).collect();
        let quorum = Arc::new(Quorum::with_clock(backends, Arc::new(clock), Drift::default()).unwrap());
        Self { nodes, quorum }
    }

    pub(crate) async fn grants(&self, claim: &Claim) -> FencingToken {
        match self.quorum.acquire(claim).await.answer {
            Ok(Acquire::Granted { tokens }) => tokens.last(),
            other => panic!("should be granted: {other:?}"),
        }
    }

    pub(crate) async fn is_busy(&self, claim: &Claim) -> Occupied {
        match self.quorum.acquire(claim).await.answer {
            Ok(Acquire::Busy(occupied)) => occupied,
            other => panic!("should be busy: {other:?}"),
        }
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Release, Unknown> {
        self.quorum.release(&claim.key, &claim.holder.id).await
    }

    /// The number of nodes on which the key is taken.
    pub(crate) async fn taken(&self, key: &str) -> usize {
        let mut taken = 0;
        for node in &self.nodes {
            taken += usize::from(node.holding(key).await.is_some());
        }
        taken
    }
}
