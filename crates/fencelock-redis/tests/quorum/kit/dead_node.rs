use fencelock_core::{
    Backend, BackendReport, BoxFuture, Capabilities, ClaimReply, Fault, Listener, Reply, Request, ServerReport, Unknown,
};
use std::future::ready;
use std::sync::Arc;

/// A node that is unreachable for every request.
#[derive(Debug)]
pub(crate) struct DeadNode;

impl Backend for DeadNode {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.portable, capabilities.evicts) = (true, true, true);
        // A quorum has the modes that all of its nodes have, and completions only if all of them do.
        (capabilities.modes.shared, capabilities.mode_changes) = (true, true);
        (capabilities.lists, capabilities.completions, capabilities.node) = (true, true, true);
        capabilities
    }

    fn name(&self) -> String {
        "dead".into()
    }

    fn listen(&self, _: Arc<dyn Listener>) {}

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(ready(match request {
            Request::Claim(..) => ClaimReply::not_sent(unreachable()).into(),
            Request::Diagnose => BackendReport::of_server(ServerReport::failed(self.name(), "it is dead")).into(),
            _ => unreachable().into(),
        }))
    }
}

fn unreachable() -> Unknown {
    Unknown::new("dead", Fault::Unreachable, "")
}
