use super::clock::{HistoryClock, SimClock};
use super::link::{Connection, Link, Network, Process};
use super::node::{SimNode, SurvivingData};
use super::scenario::Scenario;
use super::{Simulated, Trace};
use crate::Failure;
use crate::history::{History, HistoryLine, Op};
use crate::recorder::{Lines, Recorder, micros};
use crate::resource::{Store, Writer};
use crate::rng_ext::RngExt as _;
use crate::topology::Topology;
use crate::worker::{self, WorkerJob};
use crate::workload;
use fastrand::Rng;
use fencelock::backends::Quorum;
use fencelock::{Backend, Client, Clock, Key};
use fencelock_core::{Expiry, Request};
use fencelock_testkit::SplitMix;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

/// A lock that cannot be released is left to its lease.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// After this time, no task is alive that has still something to do.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Beside its leases: for requests in flight, and a waiter whose message was lost, which polls a second later.
const RECOVERY: Duration = Duration::from_secs(2);

/// The state of the simulation. Its time is true time, which no client or node can read.
#[derive(Debug)]
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    start: Instant,
    network: Arc<Network>,
    nodes: Vec<Arc<SimNode>>,
    processes: Vec<Running>,
    store: Arc<Mutex<Store>>,
    clock: Arc<dyn Clock>,
    lines: Lines,
    /// Of the faults.
    recorder: Arc<Recorder>,
    /// Of each task: the receivers of one channel are woken in random order.
    stops: Vec<watch::Sender<bool>>,
}

/// A process, its client, and its tasks.
#[derive(Debug)]
struct Running {
    process: Arc<Process>,
    client: Client,
    tasks: Vec<JoinHandle<Result<(), Failure>>>,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, trace: Trace) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let (lines, clock) = (Lines::default(), Arc::new(HistoryClock::new()) as Arc<dyn Clock>);
        let recorder = Recorder::simulated(&lines, &clock, 0);
        let node = |number| {
            let clock = SimClock::new(rng.around(scenario.node_skew_us), rate(scenario, &mut rng, 1));
            Arc::new(SimNode::new(number, clock, scenario, &recorder))
        };
        let nodes = (0..scenario.nodes).map(node).collect();
        Self {
            scenario,
            network: Arc::new(Network::new(scenario, rng.fork(), trace == Trace::On)),
            rng,
            start: Instant::now(),
            nodes,
            processes: Vec::new(),
            store: Arc::default(),
            clock,
            lines,
            recorder,
            stops: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Simulated, Failure> {
        for number in 0..self.scenario.processes {
            let running = self.open(format!("c{number}"))?;
            self.processes.push(running);
        }
        let calm = self.start + self.scenario.calm;
        while Instant::now() < calm {
            sleep(self.rng.millis(20, 220)).await;
            self.break_something().await?;
        }
        sleep_until(calm).await;
        self.heal().await;
        sleep_until(self.start + self.scenario.length).await;
        self.finish().await;
        let mut history =
            History { lines: std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner)) };
        history.sort();
        Ok(Simulated { history, trace: self.network.take_trace() })
    }

    /// Starts a process.
    fn open(&mut self, name: String) -> Result<Running, Failure> {
        let Scenario { ttl, tasks, node_timeout, .. } = *self.scenario;
        let process = Arc::new(Process {
            name: name.clone(),
            paused_until: Mutex::new(self.start),
            is_dead: AtomicBool::new(false),
        });
        let ppm = rate(self.scenario, &mut self.rng, -1);
        let clock: Arc<dyn Clock> = Arc::new(SimClock::new(self.rng.around(self.scenario.client_skew_us), ppm));
        let connect = |node: &Arc<SimNode>| {
            let (network, process, node) = (Arc::clone(&self.network), Arc::clone(&process), Arc::clone(node));
            Arc::new(Connection::new(Link { network, process, node })) as Arc<dyn Backend>
        };
        let mut connections: Vec<_> = self.nodes.iter().map(connect).collect();
        let backend = if connections.len() == 1 {
            connections.remove(0)
        } else {
            let quorum = Quorum::with_clock(connections, Arc::clone(&clock), self.scenario.drift())?;
            Arc::new(quorum.node_timeout(node_timeout)?)
        };
        let job = Arc::new(WorkerJob {
            name,
            url: String::new(),
            keys: self.scenario.keys.clone(),
            tasks,
            ttl_ms: ttl.as_millis(),
            seed: self.rng.u64(..),
            shares: self.rng.bool(),
            writers_percent: [1, 30][self.rng.usize(..2)],
            resource: 0,
            history: PathBuf::new(),
        });
        let client = Client::builder().clock(clock, self.scenario.drift()).rng(SplitMix::new(self.rng.u64(..)));
        let client = client.sharing(job.shares).backend(backend)?;
        let recorder = Recorder::simulated(&self.lines, &self.clock, ppm);
        let writers = (0..=tasks).map(|_| Writer::Simulated(Arc::clone(&self.store), self.rng.fork())).collect();
        let stopped = || {
            let (stop, stopped) = watch::channel(false);
            self.stops.push(stop);
            stopped
        };
        let tasks = worker::start(&job, &client, &recorder, writers, stopped);
        Ok(Running { process, client, tasks })
    }

    /// Ends all processes, and records what is left.
    async fn finish(&mut self) {
        for stop in &self.stops {
            stop.send_replace(true);
        }
        for Running { process, client, tasks } in std::mem::take(&mut self.processes) {
            for task in tasks {
                let done = timeout(END_LIMIT, task).await;
                if !matches!(done, Ok(Ok(Ok(())))) {
                    self.miss(format!("a task of {} that ends without an error: {done:?}", process.name));
                }
            }
            let _ = client.close(CLOSE_LIMIT).await;
        }
        self.note(Op::Stop, "");
        for pause in [Duration::ZERO, Duration::from_secs(1), self.scenario.ttl.get() + Duration::from_millis(1)] {
            sleep(pause).await;
            self.inspect();
        }
        sleep(END_LIMIT).await;
        let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if alive > 0 {
            self.miss(format!("the end of the {alive} tasks of clients that were closed"));
        }
    }

    fn note(&self, op: Op, what: impl Into<String>) {
        let now = self.recorder.now();
        self.recorder.note(&HistoryLine::new("", "", op, now, now).what(what));
    }

    /// Records that something is missing that every run has.
    fn miss(&self, what: String) {
        self.note(Op::Expect, what);
    }

    fn inspect(&self) {
        let now = self.recorder.now();
        for node in &self.nodes {
            for key in workload::keys_on_servers(3, Topology::of(self.nodes.len())) {
                let mut line = HistoryLine::new("", &key, Op::Inspect, now, now);
                let holding = Key::new(&key).ok().and_then(|key| node.holding(&key));
                let Some(holding) = holding else {
                    self.recorder.note(&line);
                    continue;
                };
                for holder in holding.holders.iter() {
                    line.holder = Some(format!("{:?} on {}", holder.holder_id(), node.name()));
                    line.valid_until_us = match holder.expiry {
                        Expiry::In(left) => Some(now + micros(left)),
                        Expiry::Never => None,
                    };
                    self.recorder.note(&line);
                }
            }
        }
    }
}

/// The error of the rate of a clock.
fn rate(scenario: &Scenario, rng: &mut Rng, apart: i64) -> i64 {
    if scenario.apart { apart * scenario.rate_ppm.cast_signed() } else { rng.around(scenario.rate_ppm) }
}

/// Injects faults, and repairs them.
impl World<'_> {
    /// Draws once for each kind of fault.
    async fn break_something(&mut self) -> Result<(), Failure> {
        if self.scenario.pauses {
            self.pause().await?;
        }
        let node = Arc::clone(&self.nodes[self.rng.usize(..self.nodes.len())]);
        if self.scenario.crashes && self.rng.chance(60_000) && node.state().up {
            self.lose(&node);
        }
        let node = &self.nodes[self.rng.usize(..self.nodes.len())];
        if self.scenario.cuts && self.rng.chance(50_000) {
            let until = Instant::now() + self.rng.millis(50, 900);
            node.state().cut_until = until.min(self.start + self.scenario.calm);
            self.network.trace(|| format!("{} is cut off", node.name()));
        }
        let node = Arc::clone(&self.nodes[self.rng.usize(..self.nodes.len())]);
        if self.scenario.jump_us > 0 && self.rng.chance(80_000) {
            self.jump(&node);
        }
        if self.rng.chance(200_000) {
            self.nodes[self.rng.usize(..self.nodes.len())].save();
        }
        if self.nodes.len() == 1 && self.rng.chance(50_000) {
            self.evict();
        }
        Ok(())
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        let index = self.rng.usize(..self.processes.len());
        let process = &self.processes[index].process;
        if self.rng.chance(350_000) {
            let until = Instant::now() + self.rng.millis(0, 500);
            *process.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
            self.network.trace(|| format!("{} sleeps", process.name));
        }
        if self.rng.chance(30_000) {
            // Without cleanup: nothing that it still does reaches a node.
            process.is_dead.store(true, Ordering::Relaxed);
            self.network.trace(|| format!("{} dies", process.name));
            let name = format!("{}'", process.name);
            self.processes[index].tasks.iter().for_each(JoinHandle::abort);
            self.processes[index] = self.open(name)?;
            self.recorder.seen("a process that died");
        }
        let node = &self.nodes[self.rng.usize(..self.nodes.len())];
        if self.rng.chance(60_000) {
            node.state().paused_until = Instant::now() + self.rng.millis(0, 500);
            self.network.trace(|| format!("{} stands still", node.name()));
        }
        if self.rng.chance(30_000) {
            // Everything at once: all that is due by then happens in any order.
            advance(self.rng.millis(1, 500)).await;
        }
        Ok(())
    }

    fn lose(&mut self, node: &Arc<SimNode>) {
        let (data, what) = match self.rng.usize(..10) {
            0..2 => (Some(SurvivingData::All), "a node that kept its data"),
            2..5 => (Some(SurvivingData::Older), "a node that restored older data"),
            5..9 => (Some(SurvivingData::Nothing), "a node that lost its data"),
            _ => (None, "a node that was flushed"),
        };
        self.network.trace(|| format!("{}: {what}", node.name()));
        self.recorder.seen(what);
        // The record of work is lost with the data.
        if data != Some(SurvivingData::All) {
            let now = self.recorder.now();
            self.recorder.note(&HistoryLine::new("", "", Op::Fault, now, now).what(what).excuses(&["C12"]));
        }
        let Some(data) = data else { return node.flush() };
        node.crash();
        let (node, down) = (Arc::clone(node), self.rng.millis(5, 400));
        tokio::spawn(async move {
            sleep(down).await;
            node.restart(data);
        });
    }

    /// A node whose clock jumps ahead ends leases early, so two clients may hold; tokens must still be ordered.
    fn jump(&mut self, node: &SimNode) {
        let by_us = self.rng.around(self.scenario.jump_us);
        // Steps in both directions, within bounds: with data loss, clocks may be off by at most 1 s.
        let jumped = &mut node.state().jumped_us;
        let by_us = if (*jumped + by_us).unsigned_abs() > self.scenario.jump_us { -*jumped } else { by_us };
        *jumped += by_us;
        node.clock.jump(by_us);
        self.recorder.seen("a clock that was set");
        let now = self.recorder.now();
        let line =
            HistoryLine::new("", "", Op::Fault, now, now).what(format!("the clock of {} by {by_us} us", node.name()));
        let excuses: &[&str] = if by_us > 0 { &["C3", "C4", "C6", "C12"] } else { &["C12"] };
        self.recorder.note(&line.excuses(excuses));
    }

    /// An operator ends a hold. Its holder learns it later than the next one, so two may hold.
    fn evict(&mut self) {
        let node = &self.nodes[0];
        let key = &self.scenario.keys[self.rng.usize(..self.scenario.keys.len())];
        let Some(holding) = Key::new(key).ok().and_then(|key| node.holding(&key)).filter(|_| node.is_whole()) else {
            return;
        };
        let now = self.recorder.now();
        for holder in holding.holders.iter().filter_map(fencelock::HolderInfo::holder_id) {
            let line = HistoryLine::new("", key, Op::Fault, now, now).what("evicted").hold(&holder.to_string(), None);
            self.recorder.note(&line.excuses(&["C3", "C4", "C6"]));
        }
        self.network.trace(|| format!("{key} is evicted"));
        self.recorder.seen("an eviction");
        node.serve(Request::Evict(&holding));
    }

    /// Waits until all faults are repaired. From then on, every key must be granted again soon.
    async fn heal(&self) {
        let is_awake = |running: &Running| {
            *running.process.paused_until.lock().unwrap_or_else(PoisonError::into_inner) <= Instant::now()
        };
        loop {
            // Asks all nodes, and not only up to the first: so a node detects that it may have lost data.
            let whole = self.nodes.iter().filter(|node| node.is_whole()).count();
            if whole == self.nodes.len() && self.processes.iter().all(is_awake) {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        // A hold that is renewed lasts for two leases. A clock may be set back, from the largest offset to the smallest.
        let bound = 3 * self.scenario.ttl.get() + RECOVERY + 2 * Duration::from_micros(self.scenario.jump_us);
        let now = self.recorder.now();
        for key in &self.scenario.keys {
            let mut line = HistoryLine::new("", key, Op::Heal, now, now);
            line.bound_us = Some(micros(bound));
            self.recorder.note(&line);
        }
    }
}
