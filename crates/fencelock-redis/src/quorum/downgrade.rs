//! Downgrades: [`DowngradeCall`] decides, this module does the I/O.

use super::Quorum;
use super::driver::Requests;
use super::node::Node;
use fencelock_core::quorum::{DowngradeCall, NodeReply, NodeRequest, proposal};
use fencelock_core::{BoxFuture, Downgrade, Renewal, Unknown};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The downgrade that is sent to every node.
struct NodeDowngrades {
    renewal: Arc<Renewal>,
    proposal: u64,
}

impl Requests for NodeDowngrades {
    fn send(&self, node: &Arc<Node>, request: NodeRequest) -> BoxFuture<'static, NodeReply> {
        let (node, renewal, proposal) = (Arc::clone(node), Arc::clone(&self.renewal), self.proposal);
        Box::pin(async move {
            let Renewal { key, holder, .. } = &*renewal;
            match request {
                NodeRequest::Raise(to) => NodeReply::Raise(node.backend.raise(key, holder, to).await),
                _ => NodeReply::Downgrade(node.backend.downgrade_proposed(&renewal, proposal).await),
            }
        })
    }
}

impl Quorum {
    pub(crate) async fn downgrade_all(&self, renewal: &Renewal) -> Result<Downgrade, Unknown> {
        let plan = self.plan(&renewal.key, |node| node.limit(renewal.ttl.get() / 10));
        let proposal = proposal(self.clock.wall_micros(), self.seen.load(Ordering::Relaxed), NonZeroU32::MIN);
        let call = DowngradeCall::new(Arc::clone(&self.settings), plan, self.clock.now());
        let downgrade = self.drive(call, NodeDowngrades { renewal: Arc::new(renewal.clone()), proposal }).await?;
        if matches!(downgrade, Ok(Downgrade::Downgraded { .. })) {
            // Waiting readers of this process may acquire the key now.
            self.changed(&renewal.key);
        }
        downgrade
    }
}
