use fencelock_core::{
    Acquire, Answer, Backend, BoxFuture, Capabilities, Claim, Eviction, Fault, FencingToken, Finding, HolderId,
    Holding, Key, Listener, QuorumNode, Raise, Release, Renew, Renewal, Unknown,
};
use std::sync::Arc;

/// A node that never replies.
#[derive(Debug)]
pub(crate) struct DeadNode;

fn nothing<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(async { Err(Unknown::new("dead", Fault::Unreachable, "")) })
}

impl Backend for DeadNode {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.portable, capabilities.evicts) = (true, true, true);
        // A quorum has the modes that all of its nodes have.
        capabilities.modes.shared = true;
        capabilities
    }

    fn name(&self) -> String {
        "dead".into()
    }

    fn listen(&self, _: Arc<dyn Listener>) {}

    fn acquire<'a>(&'a self, _: &'a Claim) -> Answer<'a, Acquire> {
        nothing()
    }

    fn watch<'a>(&'a self, _: &'a Key) -> Answer<'a, ()> {
        nothing()
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async { renewals.iter().map(|_| Err(Unknown::new("dead", Fault::Unreachable, ""))).collect() })
    }

    fn release<'a>(&'a self, _: &'a Key, _: &'a HolderId) -> Answer<'a, Release> {
        nothing()
    }

    fn inspect<'a>(&'a self, _: &'a Key) -> Answer<'a, Option<Holding>> {
        nothing()
    }

    fn list(&self) -> Answer<'_, Vec<Holding>> {
        nothing()
    }

    fn evict<'a>(&'a self, _: &'a Holding) -> Answer<'a, Eviction> {
        nothing()
    }

    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async { Vec::new() })
    }
}

impl QuorumNode for DeadNode {
    fn raise<'a>(&'a self, _: &'a Key, _: &'a HolderId, _: FencingToken) -> Answer<'a, Raise> {
        nothing()
    }
}
