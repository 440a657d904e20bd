//! Four processes of 64 tasks each acquire one key, with an empty critical section.

use crate::job::{self, BenchJob};
use crate::report::{HotKey, percentile};
use crate::uncontended::rate;
use crate::wait_strategy::WaitStrategy;
use crate::{Effort, Failure, bare, workers};
use fencelock::backends::BootClock;
use fencelock::{Clock as _, Moment};
use fencelock_testkit::SplitMix;
use futures_util::StreamExt as _;
use redis::Script;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const PROCESSES: usize = 4;
const TASKS: usize = 64;

/// The waits of each task in microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WaitLog(Vec<Vec<u32>>);

pub(crate) fn measure(url: &str, strategy: WaitStrategy, effort: Effort) -> Result<HotKey, Failure> {
    let span = effort.span * 2;
    let job = BenchJob::HotKey(job::HotKeyJob { url: url.to_owned(), strategy, span });
    let logs: Vec<WaitLog> = workers::run(&job, PROCESSES)?;
    let tasks: Vec<&Vec<u32>> = logs.iter().flat_map(|log| &log.0).collect();
    let shares: Vec<u64> = tasks.iter().map(|waits| waits.len() as u64).collect();
    let mut waits: Vec<u64> = tasks.iter().flat_map(|waits| waits.iter().map(|wait| u64::from(*wait))).collect();
    if waits.is_empty() {
        return Err(format!("{}: no task acquired the lock", strategy.words()).into());
    }
    let p50 = percentile(&mut waits, 50.0);
    let longest = percentile(&mut waits, 100.0);
    Ok(HotKey {
        strategy: strategy.words(),
        grants_per_s: rate(waits.len() as u64, span),
        wait_p50_us: p50,
        wait_p99_us: percentile(&mut waits, 99.0),
        wait_max_us: longest,
        max_over_median: longest / p50,
        jain: fencelock_load::jain(&shares),
    })
}

pub(crate) async fn work(job: &job::HotKeyJob) -> Result<WaitLog, Failure> {
    // All processes start and end approximately together: half the span passes before anything is counted.
    let end = BootClock.now() + job.span + job.span / 2;
    let counted = BootClock.now() + job.span / 2;
    let measurement = Measurement { counted, end };
    let tasks = match job.strategy {
        WaitStrategy::Fencelock => {
            let client = fencelock::Client::connect(&job.url).await?;
            (0..TASKS).map(|_| tokio::spawn(ours(client.clone(), measurement))).collect::<Vec<_>>()
        }
        strategy => {
            let connection = bare::connect(&job.url).await?;
            let notify =
                if strategy == WaitStrategy::Polling { Arc::default() } else { listen(&job.url, strategy).await? };
            (0..TASKS)
                .map(|task| {
                    let holder = format!("{}-{task}", std::process::id());
                    tokio::spawn(theirs(connection.clone(), Arc::clone(&notify), strategy, holder, measurement))
                })
                .collect()
        }
    };
    let mut log = Vec::new();
    for task in tasks {
        log.push(task.await??);
    }
    Ok(WaitLog(log))
}

#[derive(Debug, Clone, Copy)]
struct Measurement {
    counted: Moment,
    end: Moment,
}

impl Measurement {
    fn note(self, waits: &mut Vec<u32>, requested: Moment) {
        if requested >= self.counted {
            waits.push(u32::try_from(BootClock.now().since(requested).as_micros()).unwrap_or(u32::MAX));
        }
    }

    fn goes_on(self) -> bool {
        BootClock.now() < self.end
    }
}

async fn ours(client: fencelock::Client, measurement: Measurement) -> Result<Vec<u32>, Failure> {
    let mut waits = Vec::new();
    while measurement.goes_on() {
        let requested = BootClock.now();
        let guard = client.lock("hot").await?;
        measurement.note(&mut waits, requested);
        guard.release().await?;
    }
    Ok(waits)
}

const KEY: &str = "hot-plain";
const CHANNEL: &str = "hot-plain-freed";

/// `SET NX PX`; when refused, waits for a message, or for the polling interval.
async fn theirs(
    mut connection: MultiplexedConnection,
    notify: Arc<Notify>,
    strategy: WaitStrategy,
    holder: String,
    measurement: Measurement,
) -> Result<Vec<u32>, Failure> {
    let release = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]); \
         if ARGV[2] ~= '' then redis.call('PUBLISH', ARGV[2], '') end end",
    );
    let channel = if strategy == WaitStrategy::Polling { "" } else { CHANNEL };
    let (mut waits, mut rng) = (Vec::new(), SplitMix::new(std::process::id().into()));
    while measurement.goes_on() {
        let requested = BootClock.now();
        loop {
            let freed = notify.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let mut set = redis::cmd("SET");
            set.arg(KEY).arg(&holder).arg("NX").arg("PX").arg(30_000);
            if set.query_async::<Option<String>>(&mut connection).await?.is_some() {
                break;
            }
            let pause = match strategy {
                WaitStrategy::Polling => Duration::from_millis(100 + rng.below(100)),
                // A lost message must not block a waiter.
                _ => Duration::from_secs(1),
            };
            let _ = tokio::time::timeout(pause, freed).await;
            if !measurement.goes_on() {
                return Ok(waits);
            }
        }
        measurement.note(&mut waits, requested);
        release.key(KEY).arg(&holder).arg(channel).invoke_async::<()>(&mut connection).await?;
    }
    Ok(waits)
}

async fn listen(url: &str, strategy: WaitStrategy) -> Result<Arc<Notify>, Failure> {
    let notify = Arc::new(Notify::new());
    let mut pubsub = redis::Client::open(url)?.get_async_pubsub().await?;
    pubsub.subscribe(CHANNEL).await?;
    let notifier = Arc::clone(&notify);
    tokio::spawn(async move {
        let mut messages = pubsub.into_on_message();
        while messages.next().await.is_some() {
            if strategy == WaitStrategy::All { notifier.notify_waiters() } else { notifier.notify_one() }
        }
    });
    Ok(notify)
}
