use super::client::{Client, ClientMemory, Timer};
use super::clock::SimClock;
use super::coverage::{Coverage, CoverageCounts};
use super::events::{self, Message, deliver};
use super::machines::NodeReply;
use super::message::{Reply, Request, RequestBody, Response, owner};
use super::mix::{Mix, Shares};
use super::node::{SimNode, SurvivingData};
use super::queue::Queue;
use super::scenario::Scenario;
use super::{Mutant, Simulated, Trace};
use crate::history::{History, HistoryLine, Op, Outcome};
use crate::rng_ext::RngExt as _;
use fastrand::Rng;
use fencelock_core::engine::{AcquireKey, Config, SharingLimits};
use fencelock_core::quorum::Settings;
use fencelock_core::{Acquire, Capabilities, FenceGate, FencingToken, Key, Mode, Owner, Quorum};
use std::sync::Arc;

/// Start of the wall clocks, in microseconds since 1970.
const WALL_US: i64 = 1_790_000_000_000_000;
/// Delay, beyond the TTL, between the end of the last client and the final inspection.
const LAST_INSPECTION_US: u64 = 1_000_001;

/// The state of the simulation. Its time is true time, in microseconds since the start, which no client or node can read.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) shares: Shares,
    /// Settings of the calls, shared by all clients.
    pub(super) settings: Arc<Settings>,
    /// Settings of the engines, shared by all clients.
    pub(super) config: Config,
    pub(super) keys: Vec<Key>,
    pub(super) owner: Owner,
    pub(super) now: u64,
    pub(super) queue: Queue<Event>,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<SimNode>,
    pub(super) clients: Vec<Client>,
    /// The last number given to a holder, call or timer.
    pub(super) numbers: u64,
    gates: Vec<FenceGate>,
    written: u64,
    pub(super) lines: Vec<HistoryLine>,
    pub(super) covered: CoverageCounts,
    stopped: bool,
    trace: Option<Vec<String>>,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A request arrives; `run` is the run of the server that it was sent to.
    AtNode { node: usize, run: u32, request: Box<Request> },
    /// A reply arrives.
    AtClient(Box<Response>),
    /// A message arrives at this incarnation of a client.
    Message { client: usize, life: u32, message: Box<Message> },
    /// A timer of a client fires.
    Timer { client: usize, life: u32, timer: Timer },
    /// A client accesses the resource, without checking its lock.
    Access(Box<Access>),
    /// An access arrives at the resource.
    AtResource(Box<Access>),
    /// The reply of the resource arrives: the position of the access, or the greater token that it was compared with.
    Accessed(Box<Access>, Result<u64, FencingToken>),
    /// The next fault is injected.
    Breakage,
    /// An operator ends a hold.
    Evict,
    /// A node restarts.
    Restart { node: usize, memory: SurvivingData },
    /// Checks whether all nodes have recovered.
    Heal,
    /// All clients end.
    Stop,
    /// The keys are inspected.
    Inspect,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// The mode of the hold: readers read, writers write.
    mode: Mode,
    client: usize,
    life: u32,
    holder: u128,
    fence: FencingToken,
    invoked: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, trace: Trace) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let size =
            Quorum::new(scenario.nodes).unwrap_or_else(|error| unreachable!("the scenario was checked: {error}"));
        let rate = |rng: &mut Rng, apart: i64| {
            if scenario.apart { apart * scenario.rate_ppm.cast_signed() } else { rng.around(scenario.rate_ppm) }
        };
        let nodes = (0..scenario.nodes)
            .map(|_| {
                let start_us = WALL_US + rng.around(scenario.node_skew_us);
                SimNode::new(SimClock { start_us, ppm: rate(&mut rng, 1) }, scenario)
            })
            .collect();
        let clients = (0..scenario.clients)
            .map(|number| Client {
                name: format!("c{number}"),
                key: number % scenario.keys,
                clock: SimClock { start_us: rng.upto(1_000_000_000).cast_signed(), ppm: rate(&mut rng, -1) },
                wall: SimClock { start_us: WALL_US + rng.around(scenario.client_skew_us), ppm: 0 },
                paused_until: 0,
                life: 0,
                memory: ClientMemory::new(scenario.nodes),
            })
            .collect();
        Self {
            scenario,
            shares: Shares::of(scenario.mix, scenario.seed),
            settings: Arc::new(settings(scenario, size)),
            config: config(scenario),
            keys: (0..scenario.keys).filter_map(|number| Key::new(format!("k{number}")).ok()).collect(),
            owner: owner(),
            now: 0,
            queue: Queue::new(),
            rng,
            nodes,
            clients,
            numbers: 0,
            gates: vec![FenceGate::default(); scenario.keys],
            written: 0,
            lines: Vec::new(),
            covered: CoverageCounts::default(),
            stopped: false,
            trace: (trace == Trace::On).then(Vec::new),
        }
    }

    pub(super) fn run(mut self) -> Simulated {
        for client in 0..self.clients.len() {
            for _ in 0..self.shares.tasks {
                let pause = self.rng.upto(5000);
                self.after(pause, client, Timer::Start);
            }
        }
        if self.shares.queues() {
            self.queue.put(0, Event::Evict);
        }
        self.queue.put(50_000, Event::Breakage);
        self.queue.put(self.scenario.calm_us, Event::Heal);
        self.queue.put(self.scenario.length_us, Event::Stop);
        let mut events = 0;
        while let Some((at, event)) = self.queue.next() {
            self.now = at;
            events += 1;
            self.handle(event);
        }
        Simulated {
            history: History { lines: self.lines },
            covered: self.covered,
            events,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn handle(&mut self, event: Event) {
        // A stopped process handles all events when it continues, in the order of their arrival.
        if let Some(until) = self.asleep_until(&event) {
            self.queue.put(until, event);
            return;
        }
        match event {
            Event::AtNode { node, run, request } => self.serve(node, run, &request),
            Event::AtClient(response) => {
                if self.clients[response.request.client].life == response.request.life && !self.stopped {
                    self.trace(|| {
                        format!("c{} receives from n{}: {:?}", response.request.client, response.node, response.reply)
                    });
                    self.on_response(*response);
                }
            }
            Event::Message { client, life, message } => {
                if self.clients[client].life == life && !self.stopped {
                    self.trace(|| format!("c{client} is told: {message:?}"));
                    events::on_message(self, client, &message);
                }
            }
            Event::Timer { client, life, timer } => {
                if self.clients[client].life == life && !self.stopped {
                    self.ring(client, timer);
                }
            }
            Event::Access(access) => self.send_access(*access),
            Event::AtResource(access) => self.admit(access),
            Event::Accessed(access, answer) => self.note_access(*access, answer),
            Event::Breakage => self.break_something(),
            Event::Evict => events::evict(self),
            Event::Restart { node, memory } => self.restart(node, memory),
            Event::Heal => self.heal(),
            Event::Stop => self.stop(),
            Event::Inspect => self.inspect(),
        }
    }

    fn asleep_until(&self, event: &Event) -> Option<u64> {
        let until = match event {
            Event::AtNode { node, .. } => self.nodes[*node].paused_until,
            Event::AtClient(response) => self.clients[response.request.client].paused_until,
            Event::Timer { client, .. } | Event::Message { client, .. } => self.clients[*client].paused_until,
            Event::Access(access) => self.clients[access.client].paused_until,
            _ => 0,
        };
        (until > self.now).then_some(until)
    }

    fn ring(&mut self, client: usize, timer: Timer) {
        match timer {
            Timer::Start => self.start(client),
            Timer::Task { task, sleep } => self.task_timer(client, task, sleep),
            Timer::Woken(task) => self.run_task(client, task, AcquireKey::woken),
            Timer::GiveUp(task) => self.give_up(client, task),
            Timer::Renewals(number) => self.renewals_timer(client, number),
            Timer::Call(call) => self.call_timer(client, call),
            Timer::Unanswered(request) => self.direct_done(client, request, None),
            Timer::Releases => self.send_releases(client),
            Timer::Probe { node } => self.probed(client, node, false),
            Timer::Downgrade(hold) => self.downgrade(client, hold),
            Timer::Downgrading(hold, number) => self.downgrade_timer(client, hold, number),
            Timer::Done(hold) => self.done(client, hold),
            Timer::Learned(holder) => events::check_learned(self, client, holder),
        }
    }

    pub(super) fn trace(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10} us  {}", self.now, words()));
        }
    }

    /// Sets a timer of the current incarnation of a client.
    pub(super) fn after(&mut self, pause_us: u64, client: usize, timer: Timer) {
        let Client { life, .. } = self.clients[client];
        self.queue.put(self.now + pause_us, Event::Timer { client, life, timer });
    }

    pub(super) fn latency(&mut self) -> u64 {
        let usual = 100 + self.rng.upto(1500);
        let late = self.now < self.scenario.calm_us && self.rng.chance(self.scenario.tail_ppm);
        if late { 20_000 + self.rng.upto(400_000) } else { usual }
    }

    pub(super) fn happens(&mut self, ppm: u64) -> bool {
        self.now < self.scenario.calm_us && self.rng.chance(ppm)
    }

    pub(super) fn send(&mut self, node: usize, request: Request) {
        let run = self.nodes[node].run;
        if self.happens(self.scenario.loss_ppm) {
            self.trace(|| format!("c{} sends a request to n{node}, which is lost: {:?}", request.client, request.body));
        } else {
            let at = self.now + self.latency();
            self.queue.put(at, Event::AtNode { node, run, request: Box::new(request) });
        }
        if self.happens(self.scenario.twice_ppm) {
            let at = self.now + self.latency() + self.rng.upto(250_000);
            self.queue.put(at, Event::AtNode { node, run, request: Box::new(request) });
        }
    }

    fn serve(&mut self, node: usize, run: u32, request: &Request) {
        let now = self.now;
        let server = &mut self.nodes[node];
        if !server.up || server.run != run || server.cut_until > now {
            return;
        }
        let (before, clients, mut grants) = (server.state(request.key), &self.clients, Vec::new());
        let reply = server.serve(now, request, &mut |grant| deliver(clients, &mut grants, grant));
        self.trace(|| format!("n{node} <- c{}.{} {:?}: {reply:?}", request.client, request.call, request.body));
        self.notice(&reply);
        self.note_holder_count(node, request, &reply);
        events::announce(self, request.key, before, Some(request.client), grants);
        if !self.happens(self.scenario.loss_ppm) {
            let at = now + self.latency();
            self.queue.put(at, Event::AtClient(Box::new(Response { node, request: *request, reply })));
        }
    }

    pub(super) fn line(&self, client: usize, op: Op, invoked: u64) -> HistoryLine {
        let Client { name, key, .. } = &self.clients[client];
        HistoryLine::new(name, self.keys[*key].as_str(), op, invoked, self.now)
    }

    /// Records grants of a key with several holders, and permits refused for lack of free ones.
    fn note_holder_count(&mut self, node: usize, request: &Request, reply: &Reply) {
        match (reply, request.body) {
            (Reply::Node(NodeReply::Claim(Ok(Acquire::Granted { .. }))), _)
                if self.nodes[node].holder_count(request.key) > 1 =>
            {
                self.covered.saw(Coverage::Together);
            }
            (
                Reply::Node(NodeReply::Claim(Ok(Acquire::Busy(_)))),
                RequestBody::Claim { mode: Mode::Permits { .. }, .. },
            ) if self.nodes[node].holder_count(request.key) > 0 => {
                self.covered.saw(Coverage::TooFewPermits);
            }
            _ => {}
        }
    }

    /// Schedules an access to the resource, without a check that the lock is still held.
    pub(super) fn access_after(&mut self, pause_us: u64, client: usize, fence: FencingToken) {
        let Client { life, memory, .. } = &self.clients[client];
        let Some(held) = &memory.hold else { return };
        let (life, holder, mode) = (*life, held.holder, held.grant.tenure.mode);
        let access = Access { mode, client, life, holder, fence, invoked: 0 };
        self.queue.put(self.now + pause_us, Event::Access(Box::new(access)));
    }

    fn send_access(&mut self, access: Access) {
        if self.clients[access.client].life == access.life && !self.stopped {
            let at = self.now + self.latency();
            self.queue.put(at, Event::AtResource(Box::new(Access { invoked: self.now, ..access })));
        }
    }

    fn admit(&mut self, access: Box<Access>) {
        let gate = &mut self.gates[self.clients[access.client].key];
        let reads = access.mode == Mode::Shared && self.scenario.mutant != Some(Mutant::OneNumberGate);
        let admitted = if reads { gate.admit_read(access.fence) } else { gate.admit_write(access.fence) };
        let answer = match admitted {
            Ok(()) => {
                self.written += 1;
                Ok(self.written)
            }
            Err(superseded) => Err(superseded.greatest),
        };
        let at = self.now + self.latency();
        self.queue.put(at, Event::Accessed(access, answer));
    }

    fn note_access(&mut self, access: Access, answer: Result<u64, FencingToken>) {
        let (verb, op) = if access.mode == Mode::Shared { ("read", Op::Read) } else { ("wrote", Op::Write) };
        self.trace(|| format!("c{} {verb} with {}: {answer:?}", access.client, access.fence));
        let line = self.line(access.client, op, access.invoked);
        let mut line = line.hold(&holder_name(access.holder), Some(access.fence.get()));
        match answer {
            Ok(seq) => line.seq = Some(seq),
            Err(greatest) => {
                line = line.result(Outcome::Fail).what(format!("superseded by {greatest}"));
                self.covered.saw(Coverage::GateRefusal);
            }
        }
        self.lines.push(line);
    }

    /// Ends all clients; their messages in flight are still delivered.
    fn stop(&mut self) {
        for client in 0..self.clients.len() {
            self.quit(client);
        }
        self.stopped = true;
        self.trace(|| "all clients end".to_owned());
        self.lines.push(HistoryLine::new("", "", Op::Stop, self.now, self.now));
        let ttl_us = self.scenario.ttl.as_millis() * 1000;
        for pause in [0, 1_000_000, LAST_INSPECTION_US + ttl_us] {
            self.queue.put(self.now + pause, Event::Inspect);
        }
    }

    fn inspect(&mut self) {
        for node in 0..self.nodes.len() {
            for key in 0..self.scenario.keys {
                let mut line = HistoryLine::new("", self.keys[key].as_str(), Op::Inspect, self.now, self.now);
                let holders = self.nodes[node].inspect(self.now, key);
                if holders.is_empty() {
                    self.lines.push(line.clone());
                }
                for (holder, left) in holders {
                    line.holder = Some(format!("{} on n{node}", holder_name(holder)));
                    line.valid_until_us = Some(self.now + u64::try_from(left.as_micros()).unwrap_or(u64::MAX / 2));
                    self.lines.push(line.clone());
                }
            }
        }
    }
}

pub(super) fn holder_name(holder: u128) -> String {
    format!("{holder:x}")
}

fn settings(scenario: &Scenario, size: Quorum) -> Settings {
    Settings {
        size,
        drift: scenario.drift(),
        expires: true,
        names: (0..scenario.nodes).map(|number| format!("n{number}")).collect(),
        backend: "quorum".to_owned(),
        shortest_limit: scenario.node_timeout,
    }
}

fn config(scenario: &Scenario) -> Config {
    let mut capabilities = Capabilities::default();
    (capabilities.expires, capabilities.cross_process) = (true, true);
    (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
    let queues = scenario.mix == Mix::Queue;
    (capabilities.queues, capabilities.fresh_holders) = (queues, !queues);
    let sharing = queues.then(|| SharingLimits { idle_timeout: scenario.ttl.get(), ..SharingLimits::default() });
    Config { backend: "quorum".to_owned(), capabilities, drift: scenario.drift(), sharing, turn_limit: None }
}

/// Injects faults, and repairs them.
impl World<'_> {
    /// Draws once for each kind of fault.
    fn break_something(&mut self) {
        if self.now >= self.scenario.calm_us {
            return;
        }
        if self.scenario.pauses {
            self.maybe_pause();
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.scenario.crashes && self.rng.chance(30_000) && self.nodes[node].up {
            self.lose(node);
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.scenario.cuts && self.rng.chance(50_000) {
            let until = self.now + 50_000 + self.rng.upto(850_000);
            self.nodes[node].cut_until = until.min(self.scenario.calm_us);
            self.covered.saw(Coverage::Cut);
            self.trace(|| format!("n{node} is cut off until {until}"));
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.scenario.jump_us > 0 && self.rng.chance(40_000) {
            self.jump(node);
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.rng.chance(200_000) {
            self.nodes[node].save();
        }
        let pause = 20_000 + self.rng.upto(200_000);
        self.queue.put(self.now + pause, Event::Breakage);
    }

    fn maybe_pause(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        if self.rng.chance(350_000) {
            let until = self.now + self.rng.upto(500_000);
            self.clients[client].paused_until = until;
            self.trace(|| format!("c{client} sleeps until {until}"));
        }
        let client = self.rng.usize(..self.clients.len());
        if self.rng.chance(30_000) {
            self.kill(client);
        }
        let node = self.rng.usize(..self.nodes.len());
        if self.rng.chance(60_000) {
            let until = self.now + self.rng.upto(500_000);
            self.nodes[node].paused_until = until;
            self.trace(|| format!("n{node} stands still until {until}"));
        }
    }

    /// The client crashes without cleanup and restarts with empty state.
    fn kill(&mut self, client: usize) {
        self.trace(|| format!("c{client} dies"));
        self.covered.saw(Coverage::ClientDied);
        let dead = &mut self.clients[client];
        dead.life += 1;
        dead.memory = ClientMemory::new(self.nodes.len());
        for _ in 0..self.shares.tasks {
            let pause = 1000 + self.rng.upto(300_000);
            self.after(pause, client, Timer::Start);
        }
    }

    fn lose(&mut self, node: usize) {
        let (memory, coverage) = match self.rng.usize(..10) {
            0..2 => (SurvivingData::All, Coverage::Kept),
            2..5 => (SurvivingData::Older, Coverage::FellBack),
            5..9 => (SurvivingData::Nothing, Coverage::Forgot),
            _ => {
                self.trace(|| format!("n{node} is flushed"));
                self.covered.saw(Coverage::Forgot);
                self.nodes[node].flush();
                return events::reset_clients(self, node);
            }
        };
        self.trace(|| format!("n{node} crashes"));
        self.covered.saw(coverage);
        self.nodes[node].crash();
        let down = 5000 + self.rng.upto(400_000);
        self.queue.put(self.now + down, Event::Restart { node, memory });
    }

    fn restart(&mut self, node: usize, memory: SurvivingData) {
        self.trace(|| format!("n{node} is back, with memory of: {memory:?}"));
        self.nodes[node].restart(memory);
        events::reset_clients(self, node);
    }

    /// A node whose clock jumps ahead ends leases early, so two clients may hold; tokens must still be ordered.
    fn jump(&mut self, node: usize) {
        let by_us = self.rng.around(self.scenario.jump_us);
        // Steps in both directions, within bounds: with data loss, clocks may be off by at most 1 s.
        let jumped = &mut self.nodes[node].jumped_us;
        let by_us = if (*jumped + by_us).unsigned_abs() > self.scenario.jump_us { -*jumped } else { by_us };
        *jumped += by_us;
        self.nodes[node].clock.jump(by_us);
        self.covered.saw(Coverage::Jump);
        self.trace(|| format!("the clock of n{node} is set by {by_us} us"));
        let mut line =
            HistoryLine::new("", "", Op::Fault, self.now, self.now).what(format!("clock of n{node} by {by_us} us"));
        if by_us > 0 {
            line.excuses = ["C3", "C4", "C6"].map(str::to_owned).to_vec();
        }
        self.lines.push(line);
    }

    /// Records a heal event once all faults are repaired.
    fn heal(&mut self) {
        let now = self.now;
        let awake = self.clients.iter().all(|client| client.paused_until <= now);
        // Queries all nodes, without short-circuiting: the query makes a node detect that it may have lost data.
        let whole: Vec<bool> = self.nodes.iter_mut().map(|node| node.is_whole(now)).collect();
        if !awake || whole.contains(&false) {
            self.queue.put(now + 10_000, Event::Heal);
            return;
        }
        self.trace(|| "everything is whole".to_owned());
        let mut line = HistoryLine::new("", "", Op::Heal, now, now);
        // The bound covers a lock acquired just before, an orphan after it, and a clock that is set back during one of
        // them, from the largest positive to the largest negative offset.
        line.bound_us = Some(2 * self.scenario.ttl.as_millis() * 1000 + 1_000_000 + 2 * self.scenario.jump_us);
        // A waiter whose message was lost polls a second later, and one behind it after that.
        if self.shares.queues() {
            line.bound_us = line.bound_us.map(|bound| bound + 2_000_000);
        }
        self.lines.push(line);
    }
}
