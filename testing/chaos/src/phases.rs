//! The settings and the phases of every run, whatever its servers are.

use crate::Failure;
use crate::connect::{connect, once_answered};
use crate::control::{self, ControlHolds};
use crate::fault::Fault;
use crate::history::{HistoryLine, Op};
use crate::last_leader::LastLeader;
use crate::nemesis::{ClientNemesis, jump};
use crate::plan::{Plan, ScheduledFault};
use crate::recorder::{Recorder, micros, now};
use crate::recovery::{self, Recovery};
use crate::topology::Topology;
use crate::worker::WorkerJob;
use crate::workers::Workers;
use crate::workload;
use fencelock::backends::init;
use fencelock::blocking::Client;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time limit for random events of the clients, long enough for a slow machine.
const TIMEOUT: Duration = Duration::from_secs(180);
const DISMISSAL: Duration = Duration::from_secs(30);

/// The values of a key on the servers, and their remaining TTLs in milliseconds.
pub(crate) type Inspect<'a> = dyn Fn(&str) -> Vec<(String, i64)> + 'a;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of the schedule.
    pub seed: u64,
    /// The servers of the locks.
    pub topology: Topology,
    /// The URL of a store of objects, which is started before.
    pub objects: String,
    /// The faults to inject, if not all of the topology.
    pub only: Option<Vec<Fault>>,
    /// The minimum length. A started round of faults is completed; there is at least one.
    pub length: Duration,
    /// The number of worker processes.
    pub workers: usize,
    /// The number of tasks in each.
    pub tasks: usize,
    /// The number of keys. One of them is for readers, and one for permits if the servers support them.
    pub keys: usize,
    /// The TTL of the locks.
    pub ttl: Duration,
    /// The program of a worker.
    pub program: PathBuf,
}

impl Settings {
    /// The default run with this seed, these servers and this program.
    pub fn new(seed: u64, topology: Topology, program: &Path) -> Self {
        // Without failovers no lock may be lost, even on a busy machine. Objects have no shorter leases.
        let is_long = topology == Topology::ClusterMoves || topology.is_objects();
        let ttl = Duration::from_secs(if is_long { 3 } else { 1 });
        // Each master of a cluster has some.
        let keys = if topology.is_cluster() { 6 } else { 3 };
        let program = program.to_owned();
        let (objects, only, length) = (String::new(), None, Duration::ZERO);
        Self { seed, topology, objects, only, length, workers: 3, tasks: 6, keys, ttl, program }
    }

    /// The faults of a round.
    pub fn faults(&self) -> Vec<Fault> {
        self.only.clone().unwrap_or_else(|| self.topology.faults())
    }
}

/// What a run of any topology has.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) dir: &'a Path,
    /// The port of the resource.
    pub(crate) resource: u16,
    pub(crate) histories: &'a Path,
    pub(crate) recorder: Arc<Recorder>,
}

impl Frame<'_> {
    pub(crate) fn holds<'a>(&'a self, url: &'a str) -> ControlHolds<'a> {
        ControlHolds { url, recorder: &self.recorder, resource: self.resource }
    }
}

/// The clients of a run: the workers, and one of this process, which waits in the queue of every key.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) topology: Topology,
    pub(crate) ttl: Duration,
    pub(crate) workers: Workers,
    pub(crate) keys: Vec<String>,
    pub(crate) client: Client,
    pub(crate) recorder: Arc<Recorder>,
}

impl Clients {
    /// Starts them, and declares once that the servers have lost no data.
    pub(crate) fn start(run: &Frame<'_>, url: &str) -> Result<Self, Failure> {
        let Frame { settings, resource, histories, .. } = *run;
        let recorder = Arc::clone(&run.recorder);
        let Settings { topology, ttl, .. } = *settings;
        if topology.has_quarantine() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            once_answered(|| runtime.block_on(init(url, true)))?;
        }
        let client = connect(url)?;
        let at = now();
        for what in expected(settings) {
            recorder.note(&HistoryLine::new("", "", Op::Expect, at, at).what(what));
        }
        let job = WorkerJob {
            name: String::new(),
            url: url.to_owned(),
            keys: workload::keys(settings.keys, topology),
            tasks: settings.tasks,
            ttl_ms: u64::try_from(ttl.as_millis())?,
            seed: settings.seed,
            shares: true,
            writers_percent: 30,
            resource,
            history: PathBuf::new(),
        };
        let workers = Workers::spawn(&settings.program, histories, job, settings.workers)?;
        Ok(Self { topology, ttl, workers, keys: workload::keys_on_servers(settings.keys, topology), client, recorder })
    }

    /// Stops or kills those that hold a lock. See [`ClientNemesis`].
    pub(crate) fn nemesis<'a>(&'a mut self, inspect: &'a Inspect<'a>, quorum: usize) -> ClientNemesis<'a> {
        let Self { ttl, workers, keys, recorder, .. } = self;
        ClientNemesis { workers, recorder, keys, ttl: *ttl, inspect, quorum }
    }

    /// The victim of a fault: a client, or one of the servers.
    pub(crate) fn victim(&self, step: &ScheduledFault, server: &str) -> String {
        match step.fault {
            Fault::FreezeClient => format!("process {}", self.workers.pid(step.victim)),
            Fault::KillClient => format!("worker {}", step.victim),
            _ => server.to_owned(),
        }
    }

    /// Records a fault that has ended.
    pub(crate) fn note(&self, began: u64, victim: &str, fault: Fault) {
        let line = HistoryLine::new(victim, "", Op::Fault, began, now()).what(fault.name());
        self.recorder.note(&line.excuses(fault.excuses(self.topology)));
    }

    pub(crate) fn recovery(&self) -> Recovery<'_> {
        let Self { client, recorder, keys, ttl, topology, .. } = self;
        Recovery { client, recorder, keys, ttl: *ttl, topology: *topology }
    }

    /// After the end of a fault, each key must be granted soon. All quarantines end at `whole_at_us`.
    pub(crate) fn recover(&self, step: &ScheduledFault, whole_at_us: u64) {
        let healed = now();
        let bound = recovery::bound(self.ttl, healed, whole_at_us) + jump(step.fault, self.ttl);
        self.recovery().demand(step.fault.name(), healed, bound);
        self.recovery().probe(bound);
    }

    /// Lets all observers notice a leader that stays, stops all clients, and records what is left.
    pub(crate) fn finish(self, run: &Frame<'_>, inspect: &Inspect<'_>) -> Result<(), Failure> {
        let Frame { settings, histories, .. } = *run;
        let Self { ttl, workers, keys, client, recorder, .. } = self;
        LastLeader { client: &client, recorder: &recorder, histories, observers: settings.workers, ttl }.lead()?;
        workers.finish(DISMISSAL)?;
        // Its remaining holds are no longer needed.
        let _ = client.close(Duration::from_secs(1));
        let stopped = now();
        recorder.note(&HistoryLine::new("run", "", Op::Stop, stopped, stopped));
        let keys: Vec<&str> = keys.iter().map(String::as_str).chain(control::KEYS).collect();
        // The times of objects are whole seconds.
        let cut_off = Duration::from_secs(if settings.topology.is_objects() { 2 } else { 0 });
        for pause in [Duration::ZERO, Duration::from_millis(500), ttl + Duration::from_millis(600) + cut_off] {
            std::thread::sleep(pause);
            record_left(&keys, &recorder, inspect);
        }
        Ok(())
    }

    /// The clients choose their actions at random. On a slow machine some may not have occurred yet.
    pub(crate) fn await_expected(&self, settings: &Settings) -> Result<(), Failure> {
        let until = now() + micros(TIMEOUT);
        for what in expected(settings) {
            while !self.workers.has_seen(what)? && now() < until {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }
}

/// Takes the steps of the schedule, for whole rounds.
pub(crate) fn play(
    settings: &Settings,
    mut take: impl FnMut(&ScheduledFault) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let faults = settings.faults();
    let mut plan = Plan::new(settings.seed, settings.topology, settings.workers).only(faults.clone());
    let began = now();
    loop {
        for step in plan.by_ref().take(faults.len()) {
            std::thread::sleep(step.peace);
            take(&step)?;
        }
        if Duration::from_micros(now() - began) >= settings.length {
            return Ok(());
        }
    }
}

/// The events that must be observed for a valid run.
fn expected(settings: &Settings) -> Vec<&'static str> {
    let Settings { topology, .. } = settings;
    let always = ["busy", "renewed by the watchdog", "a hold past its lease", "a write was refused"];
    let always = always.into_iter().chain(["a late write was refused", "a lease passed on within a process"]);
    // The foreign program does not support sentinels or clusters, so they run without it, and without the control of
    // eviction.
    let of_proxies = ["a foreign hold", "a doctor that warned of eviction"].into_iter();
    let always = always.chain(of_proxies.filter(|_| topology.has_proxies()));
    let of_readers = ["holders of a key together", "a downgrade"].into_iter().filter(|_| topology.has_readers());
    let always = always.chain(of_readers).chain(["slots in use together"]);
    let always = always.chain(["several keys held together", "more than two keys held together"]);
    let always = always.chain(["several keys of which one was released"]);
    let always = always.chain(["work that succeeded", "work that was given back", "work that was done before"]);
    let always = always.chain(["a failed run whose start counted", "work that succeeded after its start"]);
    let always = always.chain(["a leader of another process was observed", "a leader that resigned"]);
    let killed = settings.faults().contains(&Fault::KillClient).then_some("a leader that was killed");
    let always = always.chain(killed);
    let always = always.chain((topology.has_quarantine() && !topology.has_sentinels()).then_some("quarantine hit"));
    // With a single server, every client observes the quarantine.
    let is_observed = matches!(topology, Topology::Replica | Topology::Sentinels);
    let always = always.chain(is_observed.then_some("a claim refused in quarantine"));
    let all = always.chain(settings.faults().into_iter().filter_map(Fault::proof));
    // A quorum tolerates data loss on a minority of its nodes.
    all.filter(|what| !topology.is_quorum() || *what != "unreachable").collect()
}

fn record_left(keys: &[&str], recorder: &Recorder, inspect: &Inspect<'_>) {
    for key in keys {
        let invoke_us = now();
        let held = inspect(key);
        let at = now();
        let line = HistoryLine::new("run", key, Op::Inspect, invoke_us, at);
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
