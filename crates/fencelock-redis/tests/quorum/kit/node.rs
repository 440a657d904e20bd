use super::ms;
use fencelock::backends::{Memory, TokioClock};
use fencelock_core::{
    Acquire, Backend, BackendReport, BoxFuture, Capabilities, Claim, ClaimReply, Clock, Fault, Holding, Key, Listener,
    Moment, Reply, Request, ServerReport, Unknown,
};
use std::hash::{DefaultHasher, Hash, Hasher};
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
    /// No connection, so nothing is sent.
    Refusing,
    /// The client of the node panics.
    Panicking,
    /// Each request and each reply is slow, slower than any limit, or, of the replies, lost: as this seed says.
    Storm(u64),
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

    /// The fates of the next request and of its reply.
    fn roads(&self) -> [Road; 2] {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let road = *self.road.lock().unwrap();
        let Road::Storm(seed) = road else { return [road, Road::Open] };
        let mut hasher = DefaultHasher::new();
        (seed, number).hash(&mut hasher);
        let dice = hasher.finish();
        let slow = |dice| Road::Slow(ms(if dice % 8 == 0 { 1200 } else { dice % 32 }));
        [slow(dice), if dice >> 60 == 0 { Road::BlackHole } else { slow(dice >> 32) }]
    }
}

impl Road {
    async fn travel(self) -> Result<(), Unknown> {
        match self {
            Self::Open | Self::Storm(_) => {}
            Self::Slow(span) => tokio::time::sleep(span).await,
            Self::BlackHole => std::future::pending().await,
            Self::Panicking => unreachable!("it panics before"),
            Self::Refusing => return Err(Unknown::new("node", Fault::Unreachable, "refused")),
        }
        Ok(())
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
            let [there, back] = self.roads();
            assert_ne!(there, Road::Panicking, "a bug");
            if (there, back) == (Road::Open, Road::Open) {
                return self.memory.call(request).await;
            }
            let copy = request.send_copy(Arc::clone(&self.memory) as _);
            // A request that is dropped may still arrive.
            let sent = tokio::spawn(async move {
                there.travel().await?;
                let reply = copy.await;
                back.travel().await.map(|()| reply)
            });
            sent.await.unwrap().unwrap_or_else(|lost| match request {
                Request::Diagnose => {
                    BackendReport::of_server(ServerReport::failed(self.name(), lost.to_string())).into()
                }
                Request::Claim(..) if there == Road::Refusing => ClaimReply::not_sent(lost).into(),
                _ => lost.into(),
            })
        })
    }
}
