use super::Faulty;
use fencelock::backends::{Memory, TokioClock};
use fencelock::{Builder, Client, Clock, Drift, Holding, Moment};
use std::sync::Arc;
use std::time::Duration;

/// Locks with leases in memory, the paused time of tokio, and a network with scripted faults in between.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) clock: TokioClock,
    pub(crate) memory: Arc<Memory>,
    pub(crate) net: Arc<Faulty>,
    pub(crate) client: Client,
}

/// Whether tasks share leases is up to the test target: its files are run both ways.
fn settings(clock: TokioClock) -> Builder {
    Client::builder().clock(Arc::new(clock), Drift::default()).sharing(crate::SHARING)
}

impl Scene {
    /// Inside `#[tokio::test(start_paused = true)]`.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With a network that is prepared before the client uses it.
    pub(crate) fn with(prepare: impl FnOnce(&Faulty)) -> Self {
        let clock = TokioClock::starting_now();
        let memory = Arc::new(Memory::with_leases(Arc::new(clock)));
        let net = Faulty::over(Arc::clone(&memory) as _, clock);
        prepare(&net);
        let client = settings(clock).backend(Arc::clone(&net) as _).unwrap();
        Self { clock, memory, net, client }
    }

    /// Another client of the same locks, whose network is fine.
    pub(crate) fn neighbour(&self) -> Client {
        self.another(|settings| settings)
    }

    /// Another client of the same locks with settings of its own.
    pub(crate) fn another(&self, own: impl FnOnce(Builder) -> Builder) -> Client {
        own(settings(self.clock)).backend(Arc::clone(&self.memory) as _).unwrap()
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// When a lease of `ttl` that was sent for now ends for its holder.
    pub(crate) fn deadline(&self, ttl: Duration) -> Moment {
        self.now() + ttl.saturating_sub(Drift::default().of(ttl))
    }

    /// The hold of a key, as the backend knows it.
    pub(crate) async fn holding(&self, key: &str) -> Option<Holding> {
        self.neighbour().inspect(key).await.unwrap()
    }

    /// Lets a span pass and everything in it happen.
    pub(crate) async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
