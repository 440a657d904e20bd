//! Claims: [`ClaimCall`] decides, this module does the I/O.

use super::Quorum;
use super::driver::Requests;
use super::node::Node;
use fencelock_core::quorum::{ClaimCall, NodeReply, NodeRequest, proposal};
use fencelock_core::{Acquire, BoxFuture, Claim, Event, Intent, Key, Unknown};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The claim that is sent to every node.
struct NodeClaims {
    claim: Arc<Claim>,
    proposal: u64,
}

impl Requests for NodeClaims {
    fn send(&self, node: &Arc<Node>, request: NodeRequest) -> BoxFuture<'static, NodeReply> {
        let (node, claim, proposal) = (Arc::clone(node), Arc::clone(&self.claim), self.proposal);
        // Registered before the request is sent: a release of this holder must not overtake it.
        let in_flight = (request == NodeRequest::Claim).then(|| node.in_flight(claim.holder.id));
        Box::pin(async move {
            let Claim { key, holder, .. } = &*claim;
            let reply = match request {
                NodeRequest::Raise(to) => NodeReply::Raise(node.backend.raise(key, &holder.id, to).await),
                NodeRequest::Release => NodeReply::Release(node.backend.release(key, &holder.id).await),
                NodeRequest::Watch => {
                    let _ = node.backend.watch(key).await;
                    NodeReply::Watch
                }
                _ => NodeReply::Claim(node.backend.acquire_proposed(&claim, proposal).await),
            };
            drop(in_flight);
            reply
        })
    }
}

impl Quorum {
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let plan = self.plan(&claim.key, |node| node.limit(claim.ttl.get() / 10));
        let proposal = proposal(self.clock.wall_micros(), self.seen.load(Ordering::Relaxed), claim.block);
        let requests = NodeClaims { claim: Arc::new(claim.with_intent(Intent::Try)), proposal };
        let call = ClaimCall::new(Arc::clone(&self.settings), claim, plan, self.clock.now());
        self.drive(call, requests).await?
    }

    /// Notifies waiters of this process: a server does not report changes to the connection that made them.
    pub(crate) fn changed(&self, key: &Key) {
        self.listeners.send(&Event::Changed { key: key.clone() });
    }
}
