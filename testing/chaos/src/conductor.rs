//! One run from its first to its last line.

use crate::Failure;
use crate::checker::{Verdict, check};
use crate::control::{self, Control};
use crate::fault::Fault;
use crate::foreign::Foreigner;
use crate::form::Form;
use crate::history::{History, Line, Op};
use crate::nodes::Nodes;
use crate::plan::{Plan, Step};
use crate::recorder::{self, Recorder, micros, now};
use crate::resource;
use crate::stage::Stage;
use crate::worker::Job;
use crate::workers::Workers;
use fastrand::Rng;
use fencelock::backends::init;
use fencelock::blocking::Client;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a run is to be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The schedule follows from it.
    pub seed: u64,
    /// What the locks live on.
    pub form: Form,
    /// How long to go on with rounds of faults. A round that has begun is ended; there is at least one.
    pub length: Duration,
    /// Processes that take locks.
    pub workers: usize,
    /// Tasks in each.
    pub tasks: usize,
    /// Keys that they share.
    pub keys: usize,
    /// The TTL of their locks.
    pub ttl: Duration,
    /// The program that a worker is.
    pub program: PathBuf,
}

impl Settings {
    /// The usual run of this seed with this program.
    pub fn new(seed: u64, program: &Path) -> Self {
        let ttl = Duration::from_secs(1);
        let program = program.to_owned();
        Self { seed, form: Form::Single, length: Duration::ZERO, workers: 3, tasks: 6, keys: 3, ttl, program }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// Everything that happened.
    pub history: History,
    /// What the checker thinks of it.
    pub verdict: Verdict,
}

/// The line of waiters, a loaded machine and the leases of those that have just died.
const SLACK: Duration = Duration::from_secs(8);
/// How long to wait for clients to do what they do now and then.
const PATIENCE: Duration = Duration::from_secs(20);
const DISMISSAL: Duration = Duration::from_secs(30);

/// Does everything, and checks it. Nothing is left running.
///
/// # Errors
/// If the run itself failed: a server that did not start, a worker that died of itself. What the locks did is in the
/// verdict.
pub fn run(settings: &Settings) -> Result<Run, Failure> {
    let dir = tempfile::Builder::new().prefix("fencelock-chaos-").tempdir()?;
    let histories = dir.path().join("histories");
    std::fs::create_dir(&histories)?;
    let recorder = Arc::new(Recorder::new(&histories.join("conductor.jsonl"))?);
    let mut nodes = Nodes::start(dir.path(), settings.form)?;
    let resource = resource::serve()?;
    let trusting = nodes.url(settings.form.trusting());
    Control { url: &trusting, nodes: &mut nodes, recorder: &recorder, resource }.run()?;
    // They begin with whole servers and whole clocks.
    for node in &mut nodes.all {
        node.machine.server.restart_empty()?;
    }
    trust(settings, &nodes)?;
    perform(settings, nodes, resource, &histories, recorder)?;
    let history = recorder::collect(&histories)?;
    let verdict = check(&history);
    Ok(Run { history, verdict })
}

/// Once, at the beginning, somebody says that the servers have forgotten nothing.
fn trust(settings: &Settings, nodes: &Nodes) -> Result<(), Failure> {
    let url = nodes.url(&settings.form.options(settings.ttl));
    if settings.form.has_quarantine() {
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
    let keys: Vec<String> = (0..settings.keys).map(|number| format!("key-{number}")).collect();
    let url = nodes.url(&settings.form.options(settings.ttl));
    let ttl_ms = u64::try_from(settings.ttl.as_millis())?;
    let job = Job {
        name: String::new(),
        url: url.clone(),
        keys: keys.clone(),
        tasks: settings.tasks,
        ttl_ms,
        seed: settings.seed,
        shares: true,
        resource,
        history: PathBuf::new(),
    };
    let at = now();
    for what in expected(settings) {
        recorder.note(&Line::new("", "", Op::Expect, at, at).what(what));
    }
    let foreign = nodes.all.iter().map(|node| node.door.clone()).collect();
    let workers = Workers::spawn(&settings.program, histories, job, settings.workers)?;
    let rng = Rng::with_seed(settings.seed ^ 0xf0);
    let foreigner = Foreigner::start(foreign, keys.clone(), settings.ttl, Arc::clone(&recorder), rng);
    let mut stage = Stage { form: settings.form, nodes, workers, keys, ttl: settings.ttl, recorder, whole_at_us: 0 };
    let client = Client::connect(&url)?;
    let plan = Plan::new(settings.seed, settings.form, settings.workers);
    let (began, mut plan) = (now(), plan);
    loop {
        for step in plan.by_ref().take(settings.form.faults().len()) {
            std::thread::sleep(step.peace);
            stage.play(&step)?;
            recover(settings, &stage, &client, &step);
        }
        if Duration::from_micros(now() - began) >= settings.length {
            break;
        }
    }
    linger(settings, &stage)?;
    drop(foreigner);
    finish(settings, stage, client)
}

/// What must be seen, or the run was too kind.
fn expected(settings: &Settings) -> Vec<&'static str> {
    let always = ["busy", "renewed by the watchdog", "a foreign hold", "a hold past its lease"];
    let always = always.into_iter().chain([
        "a write was refused",
        "a late write was refused",
        "a doctor who warned of eviction",
    ]);
    let always = always.chain(["a lease passed on within a process"]);
    let always = always.chain(settings.form.has_quarantine().then_some("quarantine hit"));
    // Where there is one server only, whoever asks hears of it.
    let is_heard = settings.form == Form::Replica;
    let always = always.chain(is_heard.then_some("a claim refused in quarantine"));
    let all = always.chain(settings.form.faults().into_iter().filter_map(Fault::proof));
    // With one node of several gone, nobody notices: that is what they are for.
    all.filter(|what| !settings.form.is_quorum() || *what != "unreachable").collect()
}

/// The clients decide by rng what they do. On a slow machine they may not have thrown everything yet.
fn linger(settings: &Settings, stage: &Stage) -> Result<(), Failure> {
    let until = now() + micros(PATIENCE);
    for what in expected(settings) {
        while !stage.workers.has_seen(what)? && now() < until {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

/// All is whole: each key must be granted to somebody soon. Whoever asks for it here stands in line like all others.
fn recover(settings: &Settings, stage: &Stage, client: &Client, step: &Step) {
    let mut bound = 3 * settings.ttl + SLACK;
    if matches!(step.fault, Fault::ClockForward | Fault::ClockBack) {
        bound += stage.jump();
    }
    let healed = now();
    bound += Duration::from_micros(stage.whole_at_us.saturating_sub(healed));
    for key in &stage.keys {
        let mut line = Line::new("conductor", key, Op::Heal, healed, healed).what(step.fault.name());
        line.bound_us = Some(micros(bound));
        stage.recorder.note(&line);
    }
    std::thread::scope(|scope| {
        for key in &stage.keys {
            scope.spawn(|| probe(settings, stage, client, key, bound));
        }
    });
    // A token given under a wrong clock may lie ahead by as much as the clock did. Until the time has come there, a server
    // that forgets could give it again: this is the one thing that only a quorum survives.
    if matches!(step.fault, Fault::ClockForward) {
        std::thread::sleep(stage.jump());
    }
}

fn probe(settings: &Settings, stage: &Stage, client: &Client, key: &str, bound: Duration) {
    let invoke_us = now();
    let Ok(guard) = client.lock(key).ttl(settings.ttl).wait(bound).acquire() else { return };
    let at = now();
    let until = at.saturating_add(micros(guard.remaining()));
    let (holder, fence) = (guard.holder().to_string(), Some(guard.fencing_token().get()));
    let mut line = Line::new("conductor", key, Op::Acquire, invoke_us, at).hold(&holder, fence);
    line.valid_until_us = Some(until);
    line.ttl_us = Some(micros(settings.ttl));
    stage.recorder.note(&line);
    let invoke_us = now();
    // If the answer is lost the lease ends it, and until then it counts as held up to here only.
    let _ = guard.release();
    stage.recorder.note(&Line::new("conductor", key, Op::Release, invoke_us, now()).hold(&holder, fence));
}

/// Sends everybody home, and looks at what they have left.
fn finish(settings: &Settings, stage: Stage, client: Client) -> Result<(), Failure> {
    let Stage { nodes, workers, keys, recorder, .. } = stage;
    workers.finish(DISMISSAL)?;
    // What it holds by now nobody wants any more.
    let _ = client.close(Duration::from_secs(1));
    let stopped = now();
    recorder.note(&Line::new("conductor", "", Op::Stop, stopped, stopped));
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
        let line = Line::new("conductor", key, Op::Look, invoke_us, at);
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
