//! One server as a node of a quorum.

use super::Redis;
use crate::scripts::reply;
use crate::scripts::script::{self, Requested};
use fencelock_core::{
    Acquire, Answer, Claim, Completion, Downgrade, FencingToken, HolderId, Key, QuorumNode, Raise, Renewal,
};
use std::sync::Arc;

impl QuorumNode for Redis {
    fn acquire_proposed<'a>(&'a self, claim: &'a Claim, proposal: u64) -> Answer<'a, Acquire> {
        Box::pin(self.claim(claim, Some(proposal)))
    }

    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move {
            let answer =
                self.call(|epoch_check| script::raise(&self.link.target.wire(key), holder, to, epoch_check)).await?;
            reply::read_raise(self.link.node(), answer)
        })
    }

    fn downgrade_proposed<'a>(&'a self, renewal: &'a Renewal, proposal: u64) -> Answer<'a, Downgrade> {
        Box::pin(self.share(renewal, Requested::Proposed(proposal)))
    }

    fn restore_completion<'a>(&'a self, key: &'a Key, completion: &'a Completion) -> Answer<'a, ()> {
        Box::pin(async move { self.write_stored(key, None, completion).await.map(drop) })
    }

    fn node_reconnected(&self) -> Option<Arc<dyn QuorumNode>> {
        Some(Arc::new(self.for_releases()?))
    }
}
