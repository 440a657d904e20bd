//! A complete run.

use crate::Failure;
use crate::checker::{CheckResults, check};
use crate::control::{self, Control};
use crate::fault::Fault;
use crate::foreign::ForeignClient;
use crate::history::{History, Line, Op};
use crate::nemesis::Nemesis;
use crate::nodes::Nodes;
use crate::plan::{Plan, Step};
use crate::recorder::{self, Recorder, micros, now};
use crate::resource;
use crate::topology::Topology;
use crate::worker::WorkerJob;
use crate::workers::Workers;
use crate::workload;
use fastrand::Rng;
use fencelock::backends::init;
use fencelock::blocking::Client;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of the schedule.
    pub seed: u64,
    /// The servers of the locks.
    pub topology: Topology,
    /// The minimum length. A started round of faults is completed; there is at least one.
    pub length: Duration,
    /// The number of worker processes.
    pub workers: usize,
    /// The number of tasks in each.
    pub tasks: usize,
    /// The number of keys. On a single server, two of them are for readers and for permits.
    pub keys: usize,
    /// The TTL of the locks.
    pub ttl: Duration,
    /// The program of a worker.
    pub program: PathBuf,
}

impl Settings {
    /// The default run with this seed and program.
    pub fn new(seed: u64, program: &Path) -> Self {
        let ttl = Duration::from_secs(1);
        let program = program.to_owned();
        Self { seed, topology: Topology::Single, length: Duration::ZERO, workers: 3, tasks: 6, keys: 3, ttl, program }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// All recorded events.
    pub history: History,
    /// The result of the checker.
    pub results: CheckResults,
}

/// Time for the queue, a busy machine and the leases of clients that have just died.
const SLACK: Duration = Duration::from_secs(8);
/// The time limit for random events of the clients.
const PATIENCE: Duration = Duration::from_secs(20);
const DISMISSAL: Duration = Duration::from_secs(30);

/// Runs everything, and checks the history. No process is left.
///
/// # Errors
/// If the run failed: a server did not start, or a worker exited by itself. The behaviour of the locks is in the
/// results.
pub fn run(settings: &Settings) -> Result<Run, Failure> {
    let dir = tempfile::Builder::new().prefix("fencelock-chaos-").tempdir()?;
    let histories = dir.path().join("histories");
    std::fs::create_dir(&histories)?;
    let recorder = Arc::new(Recorder::new(&histories.join("run.jsonl"))?);
    let mut nodes = Nodes::start(dir.path(), settings.topology)?;
    let resource = resource::serve()?;
    let trusting = nodes.url(settings.topology.trusting());
    Control { url: &trusting, nodes: &mut nodes, recorder: &recorder, resource }.run()?;
    // Controls start with healthy servers and correct clocks.
    for node in &mut nodes.all {
        node.machine.server.restart_empty()?;
    }
    trust(settings, &nodes)?;
    perform(settings, nodes, resource, &histories, recorder)?;
    let history = recorder::collect(&histories)?;
    let results = check(&history);
    Ok(Run { history, results })
}

/// Declares once, at the start, that the servers have lost no data.
fn trust(settings: &Settings, nodes: &Nodes) -> Result<(), Failure> {
    let url = nodes.url(&settings.topology.options(settings.ttl));
    if settings.topology.has_quarantine() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(init(&url, true))?;
    }
    drop(Client::connect(&url)?);
    Ok(())
}

fn perform(
    settings: &Settings,
    nodes: Nodes,
    resource: u16,
    histories: &Path,
    recorder: Arc<Recorder>,
) -> Result<(), Failure> {
    let keys = workload::keys(settings.keys, settings.topology);
    let url = nodes.url(&settings.topology.options(settings.ttl));
    let ttl_ms = u64::try_from(settings.ttl.as_millis())?;
    let job = WorkerJob {
        name: String::new(),
        url: url.clone(),
        keys: keys.clone(),
        tasks: settings.tasks,
        ttl_ms,
        seed: settings.seed,
        shares: true,
        writers_percent: 30,
        resource,
        history: PathBuf::new(),
    };
    let at = now();
    for what in expected(settings) {
        recorder.note(&Line::new("", "", Op::Expect, at, at).what(what));
    }
    let foreign = nodes.all.iter().map(|node| node.direct_access.clone()).collect();
    let workers = Workers::spawn(&settings.program, histories, job, settings.workers)?;
    let rng = Rng::with_seed(settings.seed ^ 0xf0);
    let foreigner = ForeignClient::start(foreign, keys.clone(), settings.ttl, Arc::clone(&recorder), rng);
    let mut nemesis =
        Nemesis { topology: settings.topology, nodes, workers, keys, ttl: settings.ttl, recorder, whole_at_us: 0 };
    let client = Client::connect(&url)?;
    let plan = Plan::new(settings.seed, settings.topology, settings.workers);
    let (began, mut plan) = (now(), plan);
    loop {
        for step in plan.by_ref().take(settings.topology.faults().len()) {
            std::thread::sleep(step.peace);
            nemesis.inject(&step)?;
            recover(settings, &nemesis, &client, &step);
        }
        if Duration::from_micros(now() - began) >= settings.length {
            break;
        }
    }
    await_expected(settings, &nemesis)?;
    drop(foreigner);
    finish(settings, nemesis, client)
}

/// The events that must be observed for a valid run.
fn expected(settings: &Settings) -> Vec<&'static str> {
    let always = ["busy", "renewed by the watchdog", "a foreign hold", "a hold past its lease"];
    let always = always.into_iter().chain([
        "a write was refused",
        "a late write was refused",
        "a doctor that warned of eviction",
    ]);
    let always = always.chain(["a lease passed on within a process"]);
    let of_modes = ["holders of a key together", "a downgrade"].into_iter();
    let always = always.chain(of_modes.filter(|_| settings.topology.has_modes()));
    let always = always.chain(settings.topology.has_quarantine().then_some("quarantine hit"));
    // With a single server, every client observes the quarantine.
    let is_observed = settings.topology == Topology::Replica;
    let always = always.chain(is_observed.then_some("a claim refused in quarantine"));
    let all = always.chain(settings.topology.faults().into_iter().filter_map(Fault::proof));
    // A quorum hides the loss of a minority of its nodes.
    all.filter(|what| !settings.topology.is_quorum() || *what != "unreachable").collect()
}

/// The clients choose their actions at random. On a slow machine some may not have occurred yet.
fn await_expected(settings: &Settings, nemesis: &Nemesis) -> Result<(), Failure> {
    let until = now() + micros(PATIENCE);
    for what in expected(settings) {
        while !nemesis.workers.has_seen(what)? && now() < until {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

/// After the end of a fault, each key must be granted soon. This client waits in the queue like all others.
fn recover(settings: &Settings, nemesis: &Nemesis, client: &Client, step: &Step) {
    let mut bound = 3 * settings.ttl + SLACK;
    if matches!(step.fault, Fault::ClockForward | Fault::ClockBack) {
        bound += nemesis.jump();
    }
    let healed = now();
    bound += Duration::from_micros(nemesis.whole_at_us.saturating_sub(healed));
    for key in &nemesis.keys {
        let mut line = Line::new("run", key, Op::Heal, healed, healed).what(step.fault.name());
        line.bound_us = Some(micros(bound));
        nemesis.recorder.note(&line);
    }
    std::thread::scope(|scope| {
        for key in &nemesis.keys {
            scope.spawn(|| probe(settings, nemesis, client, key, bound));
        }
    });
    // A token granted under a wrong clock may be as far ahead as the clock was. Until that time has come, a server
    // that loses its data could grant it again: only a quorum tolerates this.
    if matches!(step.fault, Fault::ClockForward) {
        std::thread::sleep(nemesis.jump());
    }
}

fn probe(settings: &Settings, nemesis: &Nemesis, client: &Client, key: &str, bound: Duration) {
    let invoke_us = now();
    let Ok(guard) = client.lock(key).ttl(settings.ttl).wait(bound).acquire() else { return };
    let at = now();
    let until = at.saturating_add(micros(guard.remaining()));
    let (holder, fence) = (guard.holder().to_string(), Some(guard.fencing_token().get()));
    let mut line = Line::new("run", key, Op::Acquire, invoke_us, at).hold(&holder, fence);
    line.valid_until_us = Some(until);
    line.ttl_us = Some(micros(settings.ttl));
    nemesis.recorder.note(&line);
    let invoke_us = now();
    // If the reply is lost, the lease expires, and until then it counts as held only up to here.
    let _ = guard.release();
    nemesis.recorder.note(&Line::new("run", key, Op::Release, invoke_us, now()).hold(&holder, fence));
}

/// Stops all clients, and records what is left.
fn finish(settings: &Settings, nemesis: Nemesis, client: Client) -> Result<(), Failure> {
    let Nemesis { nodes, workers, keys, recorder, .. } = nemesis;
    workers.finish(DISMISSAL)?;
    // Its remaining holds are no longer needed.
    let _ = client.close(Duration::from_secs(1));
    let stopped = now();
    recorder.note(&Line::new("run", "", Op::Stop, stopped, stopped));
    let keys: Vec<&str> = keys.iter().map(String::as_str).chain(control::KEYS).collect();
    look(&nodes, &keys, &recorder);
    std::thread::sleep(Duration::from_millis(500));
    look(&nodes, &keys, &recorder);
    std::thread::sleep(settings.ttl + Duration::from_millis(600));
    look(&nodes, &keys, &recorder);
    Ok(())
}

fn look(nodes: &Nodes, keys: &[&str], recorder: &Recorder) {
    for key in keys {
        let invoke_us = now();
        let held = nodes.look(key);
        let at = now();
        let line = Line::new("run", key, Op::Look, invoke_us, at);
        if held.is_empty() {
            recorder.note(&line);
        }
        for (value, left) in held {
            let mut line = line.clone().hold(&value, None);
            line.valid_until_us = u64::try_from(left).ok().map(|left| at + left * 1000);
            recorder.note(&line);
        }
    }
}
