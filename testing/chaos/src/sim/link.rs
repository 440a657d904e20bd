//! The network between processes and nodes.

use super::node::SimNode;
use super::scenario::Scenario;
use crate::rng_ext::RngExt as _;
use fastrand::Rng;
use fencelock_core::{Backend, BoxFuture, Capabilities, Event, Fault, Key, Listener, Reply, Request, Unknown};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a process waits for a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// The faults of all messages, by one source of random numbers.
#[derive(Debug)]
pub(super) struct Network {
    rng: Mutex<Rng>,
    loss_ppm: u64,
    twice_ppm: u64,
    tail_ppm: u64,
    /// No faults from then on.
    calm: Instant,
    start: Instant,
    trace: Option<Mutex<Vec<String>>>,
}

impl Network {
    pub(super) fn new(scenario: &Scenario, rng: Rng, traces: bool) -> Self {
        Self {
            rng: Mutex::new(rng),
            loss_ppm: scenario.loss_ppm,
            twice_ppm: scenario.twice_ppm,
            tail_ppm: scenario.tail_ppm,
            calm: Instant::now() + scenario.calm,
            start: Instant::now(),
            trace: traces.then(Mutex::default),
        }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn happens(&self, ppm: u64) -> bool {
        Instant::now() < self.calm && self.draw(|rng| rng.chance(ppm))
    }

    fn latency(&self) -> Duration {
        if self.happens(self.tail_ppm) {
            self.draw(|rng| rng.millis(20, 420))
        } else {
            self.draw(|rng| rng.millis(0, 4))
        }
    }

    pub(super) fn trace(&self, words: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let line = format!("{:>7} ms  {}", self.start.elapsed().as_millis(), words());
            trace.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    pub(super) fn take_trace(&self) -> Vec<String> {
        let take =
            |trace: &Mutex<Vec<String>>| std::mem::take(&mut *trace.lock().unwrap_or_else(PoisonError::into_inner));
        self.trace.as_ref().map(take).unwrap_or_default()
    }
}

/// A process that uses the client.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) paused_until: Mutex<Instant>,
    pub(super) is_dead: AtomicBool,
}

/// The two ends of a connection, and what is between them.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) network: Arc<Network>,
    pub(super) process: Arc<Process>,
    pub(super) node: Arc<SimNode>,
}

impl Link {
    /// Carries a message that nothing loses. A stopped end handles it when it continues. Says whether it arrives.
    async fn carry(&self, run: u32) -> bool {
        sleep(self.network.latency()).await;
        let paused_until = || {
            let process = *self.process.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
            process.max(self.node.state().paused_until)
        };
        while paused_until() > Instant::now() {
            sleep_until(paused_until()).await;
        }
        let state = self.node.state();
        state.up
            && state.run == run
            && state.cut_until <= Instant::now()
            && !self.process.is_dead.load(Ordering::Relaxed)
    }

    /// Carries a message, unless it is lost.
    async fn carry_or_lose(&self, run: u32) -> bool {
        let is_lost = self.network.happens(self.network.loss_ppm);
        self.carry(run).await && !is_lost
    }

    /// Sends a request, which no one can take back.
    fn send(&self, request: Request<'_>, reply: Option<oneshot::Sender<Reply>>, after: Duration) {
        let (link, run) = (self.clone(), self.node.state().run);
        let what = self.network.trace.is_some().then(|| format!("{request:?}"));
        let served = request.send_copy(Arc::clone(&self.node) as Arc<dyn Backend>);
        tokio::spawn(async move {
            sleep(after).await;
            if !link.carry_or_lose(run).await {
                return;
            }
            let answer = served.await;
            link.network.trace(|| {
                format!("{} <- {} {}: {answer:?}", link.node.name(), link.process.name, what.unwrap_or_default())
            });
            if let Some(reply) = reply
                && link.carry_or_lose(run).await
            {
                let _ = reply.send(answer);
            }
        });
    }

    async fn ask(&self, request: Request<'_>) -> Reply {
        let (reply, answer) = oneshot::channel();
        self.send(request, Some(reply), Duration::ZERO);
        if self.network.happens(self.network.twice_ppm) {
            self.send(request, None, self.network.draw(|rng| rng.millis(0, 250)));
        }
        let answer = async {
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        };
        let none = |_| Unknown::new(self.node.name(), Fault::Timeout, "no reply").into();
        timeout(REPLY_LIMIT, answer).await.unwrap_or_else(none)
    }
}

/// A connection of a process.
#[derive(Debug)]
pub(super) struct Connection {
    link: Link,
    relays: Mutex<Vec<Arc<dyn Listener>>>,
}

impl Connection {
    pub(super) fn new(link: Link) -> Self {
        Self { link, relays: Mutex::default() }
    }
}

/// Carries the events of a node to a listener of a process.
#[derive(Debug)]
struct Relay {
    link: Link,
    to: Weak<dyn Listener>,
}

impl Listener for Relay {
    fn event(&self, event: &Event) {
        let twice = self.link.network.happens(self.link.network.twice_ppm);
        let run = self.link.node.state().run;
        for after in [Duration::ZERO, Duration::from_millis(250)].into_iter().take(1 + usize::from(twice)) {
            let (link, to, event) = (self.link.clone(), Weak::clone(&self.to), event.clone());
            tokio::spawn(async move {
                sleep(after).await;
                // A process knows when its connection breaks.
                let arrives = link.carry_or_lose(run).await || event == Event::Reset;
                if arrives && let Some(listener) = to.upgrade() {
                    link.network.trace(|| format!("{} -> {} {event:?}", link.node.name(), link.process.name));
                    listener.event(&event);
                }
            });
        }
    }
}

impl Backend for Connection {
    fn capabilities(&self) -> Capabilities {
        self.link.node.capabilities()
    }

    fn name(&self) -> String {
        self.link.node.name()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let relay: Arc<dyn Listener> = Arc::new(Relay { link: self.link.clone(), to: Arc::downgrade(&listener) });
        self.link.node.listen(Arc::clone(&relay));
        self.relays.lock().unwrap_or_else(PoisonError::into_inner).push(relay);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(self.link.ask(request))
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        self.link.node.announces_waiters(key)
    }
}
