//! A process with many tasks that use locks, write to the resource, and record events.

mod election;
mod once;
mod recorded_hold;
mod recorded_set;
mod several;
mod task;

use crate::Failure;
use crate::recorder::Recorder;
use crate::resource::Writer;
use election::Candidate;
use fastrand::Rng;
use fencelock::Client;
use fencelock_load::workers::{Harness, OnEof};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use task::Task;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The environment variable of a worker.
pub(crate) const VARIABLE: &str = "FENCELOCK_CHAOS_WORKER";

/// If no server answers a release, the lease is left to expire.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerJob {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) keys: Vec<String>,
    pub(crate) tasks: usize,
    pub(crate) ttl_ms: u64,
    pub(crate) seed: u64,
    /// Whether its tasks share leases.
    pub(crate) shares: bool,
    /// The share of exclusive claims of a key for readers.
    pub(crate) writers_percent: u8,
    pub(crate) resource: u16,
    pub(crate) history: PathBuf,
}

/// Runs the job of a worker; `None` in the main process.
pub fn run_if_asked() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    })
}

fn work() -> Result<(), Failure> {
    let harness = Harness::attach(OnEof::Finish)?;
    let job: WorkerJob = serde_json::from_str(&harness.receive().unwrap_or_default())?;
    harness.ready()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = watch::channel(false);
    std::thread::spawn(move || {
        // No more messages arrive until the end.
        while harness.receive().is_some() {}
        let _ = stop.send(true);
    });
    runtime.block_on(crowd(job, stopped))
}

async fn crowd(job: WorkerJob, stopped: watch::Receiver<bool>) -> Result<(), Failure> {
    let recorder = Arc::new(Recorder::new(&job.history)?);
    let Some(client) = connect(&job, &stopped).await? else { return Ok(()) };
    let job = Arc::new(job);
    let mut writers = Vec::new();
    for _ in 0..=job.tasks {
        writers.push(Writer::connect(job.resource).await?);
    }
    for task in start(&job, &client, &recorder, writers, || stopped.clone()) {
        task.await??;
    }
    // A lock that could not be released expires; otherwise the final check of the run detects it.
    let _ = client.close(CLOSE_TIMEOUT).await;
    Ok(())
}

/// Starts the tasks, the candidate and the observer of a process. They end when the run does.
pub(crate) fn start(
    job: &Arc<WorkerJob>,
    client: &Client,
    recorder: &Arc<Recorder>,
    writers: Vec<Writer>,
    mut stopped: impl FnMut() -> watch::Receiver<bool>,
) -> Vec<JoinHandle<Result<(), Failure>>> {
    let mut rng = Rng::with_seed(job.seed);
    let mut started =
        vec![tokio::spawn(election::observe(Arc::clone(job), client.clone(), Arc::clone(recorder), stopped()))];
    for (number, writer) in writers.into_iter().enumerate() {
        let rng = Rng::with_seed(rng.u64(..));
        let task = Task::new(number, Arc::clone(job), client.clone(), Arc::clone(recorder), rng);
        let stopped = stopped();
        started.push(if number < job.tasks {
            tokio::spawn(task.run(writer, stopped))
        } else {
            tokio::spawn(Candidate(task).run(writer, stopped))
        });
    }
    started
}

/// Connects until a server answers, because a worker may start during a fault; `None` if the run ends before.
async fn connect(job: &WorkerJob, stopped: &watch::Receiver<bool>) -> Result<Option<Client>, Failure> {
    loop {
        match Client::builder().sharing(job.shares).connect(&job.url).await {
            Ok(client) => return Ok(Some(client)),
            Err(error @ fencelock::Error::Config(_)) => return Err(error.into()),
            Err(_) if *stopped.borrow() => return Ok(None),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
