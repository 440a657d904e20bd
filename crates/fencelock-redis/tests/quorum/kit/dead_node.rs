use fencelock_core::{
    Acquire, Admin, Answer, Backend, BackendReport, BoxFuture, Capabilities, Claim, ClaimReply, ClearCompletion,
    Completion, CompletionRead, Completions, Downgrade, Eviction, Fault, FencingToken, HolderId, Holding, Key,
    Listener, ModeChanges, QuorumNode, Raise, Release, Renew, Renewal, Resize, ServerReport, Unknown, WriteCompletion,
};
use std::sync::Arc;

/// A node that is unreachable for every request.
#[derive(Debug)]
pub(crate) struct DeadNode;

fn nothing<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(async { Err(unreachable()) })
}

fn unreachable() -> Unknown {
    Unknown::new("dead", Fault::Unreachable, "")
}

impl Backend for DeadNode {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.portable, capabilities.evicts) = (true, true, true);
        // A quorum has the modes that all of its nodes have, and completions only if all of them do.
        capabilities.modes.shared = true;
        capabilities
    }

    fn name(&self) -> String {
        "dead".into()
    }

    fn listen(&self, _: Arc<dyn Listener>) {}

    fn acquire<'a>(&'a self, _: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        Box::pin(async { ClaimReply::not_sent(unreachable()) })
    }

    fn watch<'a>(&'a self, _: &'a Key) -> Answer<'a, ()> {
        nothing()
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async { renewals.iter().map(|_| Err(unreachable())).collect() })
    }

    fn release<'a>(&'a self, _: &'a Key, _: &'a HolderId) -> Answer<'a, Release> {
        nothing()
    }

    fn inspect<'a>(&'a self, _: &'a Key) -> Answer<'a, Option<Holding>> {
        nothing()
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn completions(&self) -> Option<&dyn Completions> {
        Some(self)
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        Some(self)
    }
}

impl Admin for DeadNode {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        nothing()
    }

    fn evict<'a>(&'a self, _: &'a Holding) -> Answer<'a, Eviction> {
        nothing()
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        Box::pin(async { BackendReport::of_server(ServerReport::failed(self.name(), "it is dead")) })
    }
}

impl Completions for DeadNode {
    fn read_completion<'a>(&'a self, _: &'a Key) -> Answer<'a, CompletionRead> {
        nothing()
    }

    fn write_completion<'a>(&'a self, _: &'a Key, _: &'a HolderId, _: &'a Completion) -> Answer<'a, WriteCompletion> {
        nothing()
    }

    fn clear_completion<'a>(&'a self, _: &'a Key, _: &'a Completion) -> Answer<'a, ClearCompletion> {
        nothing()
    }
}

impl ModeChanges for DeadNode {
    fn downgrade<'a>(&'a self, _: &'a Renewal) -> Answer<'a, Downgrade> {
        nothing()
    }

    fn resize<'a>(&'a self, _: &'a Key, _: u32) -> Answer<'a, Resize> {
        nothing()
    }
}

impl QuorumNode for DeadNode {
    fn acquire_proposed<'a>(&'a self, _: &'a Claim, _: u64) -> Answer<'a, Acquire> {
        nothing()
    }

    fn raise<'a>(&'a self, _: &'a Key, _: &'a HolderId, _: FencingToken) -> Answer<'a, Raise> {
        nothing()
    }

    fn downgrade_proposed<'a>(&'a self, _: &'a Renewal, _: u64) -> Answer<'a, Downgrade> {
        nothing()
    }

    fn restore_completion<'a>(&'a self, _: &'a Key, _: &'a Completion) -> Answer<'a, ()> {
        nothing()
    }
}
