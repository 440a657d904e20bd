use fencelock::backends::{Memory, TokioClock};
use fencelock_core::{
    Acquire, Admin, Answer, Backend, BackendReport, BoxFuture, Capabilities, Claim, ClaimReply, ClearCompletion, Clock,
    Completion, CompletionRead, Completions, Downgrade, Eviction, Fault, FencingToken, HolderId, Holding, Key,
    Listener, ModeChanges, Moment, QuorumNode, Raise, Release, Renew, Renewal, Resize, ServerReport, Unknown,
    WriteCompletion,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The fate of a request to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Road {
    Open,
    /// It arrives with this delay.
    Slow(Duration),
    /// The request is lost, so there is no reply.
    BlackHole,
    Refusing,
}

/// A memory backend with leases, behind a simulated network.
#[derive(Debug)]
pub(crate) struct Node {
    memory: Arc<Memory>,
    road: Mutex<Road>,
    requests: AtomicUsize,
}

#[derive(Debug)]
struct Skewed(TokioClock, Duration);

impl Clock for Skewed {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall_micros(&self) -> u64 {
        (self.0.now() + self.1).as_micros()
    }
}

impl Node {
    pub(crate) fn new(clock: TokioClock, ahead: Duration) -> Arc<Self> {
        let memory = Arc::new(Memory::with_leases(Arc::new(Skewed(clock, ahead))));
        Arc::new(Self { memory, road: Mutex::new(Road::Open), requests: AtomicUsize::new(0) })
    }

    pub(crate) fn road(&self, road: Road) {
        *self.road.lock().unwrap() = road;
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The state of the node itself.
    pub(crate) async fn holding(&self, key: &str) -> Option<Holding> {
        self.memory.inspect(&Key::new(key).unwrap()).await.unwrap()
    }

    /// Another holder takes the key on this node only.
    pub(crate) async fn take(&self, claim: &Claim) {
        assert!(matches!(self.memory.acquire(claim).await.answer, Ok(Acquire::Granted { .. })));
    }

    async fn travel(&self) -> Result<&Memory, Unknown> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let road = *self.road.lock().unwrap();
        match road {
            Road::Open => {}
            Road::Slow(span) => tokio::time::sleep(span).await,
            Road::BlackHole => std::future::pending().await,
            Road::Refusing => return Err(Unknown::new("node", Fault::Unreachable, "refused")),
        }
        Ok(&self.memory)
    }
}

impl Backend for Node {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn name(&self) -> String {
        "node".into()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.memory.listen(listener);
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        Box::pin(async {
            match self.travel().await {
                Ok(memory) => memory.acquire(claim).await,
                Err(unknown) => Err(unknown).into(),
            }
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async { self.travel().await?.watch(key).await })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async {
            match self.travel().await {
                Ok(memory) => memory.renew(renewals).await,
                Err(unknown) => vec![Err(unknown); renewals.len()],
            }
        })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async { self.travel().await?.release(key, holder).await })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async { self.travel().await?.inspect(key).await })
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

impl Admin for Node {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async { self.travel().await?.list().await })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async { self.travel().await?.evict(seen).await })
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        Box::pin(async {
            match self.travel().await {
                Ok(memory) => memory.diagnose().await,
                Err(unknown) => BackendReport::of_server(ServerReport::failed(self.name(), unknown.to_string())),
            }
        })
    }
}

impl Completions for Node {
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        Box::pin(async { self.travel().await?.read_completion(key).await })
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        Box::pin(async { self.travel().await?.write_completion(key, holder, completion).await })
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        Box::pin(async { self.travel().await?.clear_completion(key, seen).await })
    }
}

impl ModeChanges for Node {
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(async { self.travel().await?.downgrade(renewal).await })
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(async move { self.travel().await?.resize(key, limit).await })
    }
}

impl QuorumNode for Node {
    fn acquire_proposed<'a>(&'a self, claim: &'a Claim, proposal: u64) -> Answer<'a, Acquire> {
        Box::pin(async move { self.travel().await?.acquire_proposed(claim, proposal).await })
    }

    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move { self.travel().await?.raise(key, holder, to).await })
    }

    fn downgrade_proposed<'a>(&'a self, renewal: &'a Renewal, proposal: u64) -> Answer<'a, Downgrade> {
        Box::pin(async move { self.travel().await?.downgrade_proposed(renewal, proposal).await })
    }

    fn restore_completion<'a>(&'a self, key: &'a Key, completion: &'a Completion) -> Answer<'a, ()> {
        Box::pin(async { self.travel().await?.restore_completion(key, completion).await })
    }
}
