//! A worker: its tasks, and its side of the [protocol](crate::protocol).

use crate::error::NotMeasured;
use crate::locks::{one_of_many, own};
use crate::plan::millis;
use crate::protocol::{LoadJob, Log, WorkerMessage, Workload};
use crate::shop::Shop;
use crate::tally::Tally;
use crate::wakeups::WakeUps;
use crate::workers::{Harness, OnEof};
use fencelock::backends::BootClock;
use fencelock::{Client, Clock, Guard};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The pause after an error, so that an unreachable server is not flooded.
const PAUSE: Duration = Duration::from_millis(10);
/// The time limit for pending releases and claims after the span.
const LEAVING: Duration = Duration::from_secs(5);

/// Runs a worker: reads a job from stdin, waits for the start, and writes a log to stdout. Blocks; do not call it in
/// async code. The process is killed if its stdin ends before the log is written.
///
/// # Errors
/// [`NotMeasured`] if the work did not start. Later errors are in the log.
pub fn serve() -> Result<(), NotMeasured> {
    let harness = Harness::attach(OnEof::Kill).map_err(NotMeasured::system("attach to the harness"))?;
    let job = LoadJob::parse(&harness.receive().unwrap_or_default()).map_err(NotMeasured::Plan)?;
    // One thread for all tasks: the number of processes limits the number of cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(NotMeasured::system("start"))?;
    let context = runtime.block_on(WorkerContext::open(&job))?;
    harness.ready().map_err(|_| NotMeasured::Stopped)?;
    let log = runtime.block_on(runtime.spawn(context.work(job)));
    let log = log.map_err(|error| NotMeasured::Worker(format!("failed: {error}")))?;
    harness.send(&WorkerMessage::Log(Box::new(log)).line()).map_err(NotMeasured::system("write a line"))
}

/// The shared state of all tasks of a worker.
struct WorkerContext {
    client: Client,
    wakeups: WakeUps,
    shop: Option<Shop>,
}

impl WorkerContext {
    async fn open(job: &LoadJob) -> Result<Self, NotMeasured> {
        let client = Client::builder().sharing(!job.unshared).connect(&job.url).await?;
        let shop = if job.workload == Workload::FlashSale { Some(Shop::open(job).await?) } else { None };
        Ok(Self { client, wakeups: WakeUps::counted(), shop })
    }

    async fn work(self, job: LoadJob) -> Log {
        let (now, begun) = (BootClock.now(), Instant::now());
        let counted = now + job.warm_up();
        let tally = Arc::new(Tally::new(&job, counted, counted + job.span()));
        let over = begun + job.warm_up() + job.span();
        let job = Arc::new(job);
        let tasks: Vec<_> = (0..job.tasks)
            .map(|number| {
                let (client, shop) = (self.client.clone(), self.shop.clone());
                let task = Task { number, client, shop, job: Arc::clone(&job), tally: Arc::clone(&tally), over };
                tokio::spawn(task.work())
            })
            .collect();
        sleep_until(begun + job.warm_up()).await;
        let wasted = self.wakeups.wasted();
        let stoppers: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
        let all = async {
            for task in tasks {
                if let Err(error) = task.await {
                    tally.failed(&error);
                }
            }
        };
        let in_time = tokio::time::timeout_at(over + LEAVING, all).await;
        let took = Instant::now().duration_since(begun + job.warm_up());
        if in_time.is_err() {
            tally.failed(&"a task did not finish in time");
            stoppers.iter().for_each(tokio::task::AbortHandle::abort);
        }
        let wasted = self.wakeups.wasted() - wasted;
        // A lock whose release is not confirmed expires, or is removed by the harness.
        let _ = self.client.close(LEAVING).await;
        tally.log(wasted, Some(millis(took)).filter(|took| *took < job.span_ms))
    }
}

/// A task that acquires locks.
struct Task {
    number: u32,
    client: Client,
    shop: Option<Shop>,
    job: Arc<LoadJob>,
    tally: Arc<Tally>,
    over: Instant,
}

impl Task {
    async fn work(mut self) {
        let job = Arc::clone(&self.job);
        let over = sleep_until(self.over);
        tokio::pin!(over);
        let mut rng = fastrand::Rng::with_seed(u64::from(job.process) << 32 | u64::from(self.number));
        let mut key = match job.workload {
            Workload::Uncontended => own(&job.key, job.process, self.number),
            _ => job.key.clone(),
        };
        while !over.is_elapsed() && Instant::now() < self.over {
            if job.workload == Workload::ManyKeys {
                key = one_of_many(&job.key, rng.u32(0..job.keys));
            }
            let requested = BootClock.now();
            let acquired = tokio::select! {
                biased;
                acquired = self.client.lock(&key).ttl(job.ttl()).acquire() => acquired,
                () = &mut over => return,
            };
            let done = match acquired {
                Ok(acquired) => {
                    self.tally.granted(self.number, requested, BootClock.now());
                    self.hold(acquired).await
                }
                Err(error) => Err(error.into()),
            };
            match done {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    self.tally.failed(&error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Does the work of the workload, and releases the lock; `false` if no work is left.
    async fn hold(&mut self, guard: Guard) -> Result<bool, NotMeasured> {
        if !self.client.capabilities().cross_process && self.job.workload != Workload::Uncontended {
            // In memory no operation waits, so no other task would run while this task holds the lock.
            tokio::task::yield_now().await;
        }
        let goes_on = match &mut self.shop {
            Some(shop) => shop.sell(guard.fencing_token().get()).await,
            None => Ok(true),
        };
        guard.release().await?;
        goes_on
    }
}
