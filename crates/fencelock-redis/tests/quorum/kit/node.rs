use fencelock::backends::{Memory, TokioClock};
use fencelock_core::{
    Acquire, Backend, BackendReport, BoxFuture, Capabilities, Claim, Clock, Fault, Holding, Key, Listener, Moment,
    Reply, Request, ServerReport, Unknown,
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

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            match (self.travel().await, request) {
                (Ok(memory), _) => memory.call(request).await,
                (Err(lost), Request::Diagnose) => {
                    BackendReport::of_server(ServerReport::failed(self.name(), lost.to_string())).into()
                }
                (Err(lost), _) => lost.into(),
            }
        })
    }
}
