//! Renewals, releases and inspections: requests to all nodes at once, until the votes decide.

use super::Quorum;
use super::driver::Requests;
use super::inspection::NodeInspections;
use super::node::Node;
use fencelock_core::quorum::{NodeReply, NodeRequest, REPLY_TIMEOUT, ReleaseCall, RenewCall};
use fencelock_core::{BoxFuture, HolderId, Key, Release, Renew, Renewal, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// The batch of renewals that is sent to every node.
struct NodeRenewals(Arc<[Renewal]>);

impl Requests for NodeRenewals {
    fn send(&self, node: &Arc<Node>, _: NodeRequest) -> BoxFuture<'static, NodeReply> {
        let (node, batch) = (Arc::clone(node), Arc::clone(&self.0));
        Box::pin(async move { NodeReply::Renew(node.backend.renew(&batch).await) })
    }
}

/// The release that is sent to every node.
struct NodeReleases(Key, HolderId);

impl Requests for NodeReleases {
    fn send(&self, node: &Arc<Node>, request: NodeRequest) -> BoxFuture<'static, NodeReply> {
        let (node, key, holder) = (Arc::clone(node), self.0.clone(), self.1);
        Box::pin(async move {
            if request == NodeRequest::ClaimEnd {
                node.quiet(&holder).await;
                return NodeReply::ClaimEnd;
            }
            NodeReply::Release(node.backend.release(&key, &holder).await)
        })
    }
}

impl Quorum {
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let Some(first) = renewals.first() else { return Vec::new() };
        let plan = self.plan(&first.key, |node| RenewCall::limit(renewals, |most| node.limit(most)));
        let call = RenewCall::new(Arc::clone(&self.settings), renewals.len(), plan);
        let answers = self.drive(call, NodeRenewals(renewals.into())).await;
        answers.unwrap_or_else(|ended| vec![Err(ended); renewals.len()])
    }

    pub(super) async fn release_all(&self, key: &Key, holder: HolderId) -> Result<Release, Unknown> {
        let claiming = self.nodes.iter().enumerate().filter(|(_, node)| node.is_claiming(&holder));
        let claiming = claiming.map(|(number, _)| number).collect();
        let call = ReleaseCall::new(Arc::clone(&self.settings), self.plan(key, patience), claiming);
        let release = self.drive(call, NodeReleases(key.clone(), holder)).await?;
        if release == Ok(Release::Released) {
            self.changed(key);
        }
        release
    }

    /// Inspects one key until a majority agrees.
    pub(super) async fn inspect_all(&self, key: &Key) -> NodeInspections {
        let mut answers = self.send_to_all(key, patience, |node| {
            let key = key.clone();
            async move { node.inspect(&key).await }
        });
        let mut inspections = NodeInspections::new(self.settings.size);
        while !inspections.is_clear() {
            let Some((node, answer)) = answers.recv().await else { break };
            inspections.on_reply(node, answer);
        }
        inspections
    }
}

pub(super) fn patience(node: &Node) -> Duration {
    node.limit(REPLY_TIMEOUT)
}
