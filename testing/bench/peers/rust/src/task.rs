use crate::job::{Job, Log, Share};
use crate::{Failure, Locks};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Acquires and releases locks until the end.
pub(crate) struct Task {
    job: Arc<Job>,
    number: u32,
    counted: Instant,
    end: Instant,
    /// The log may be created during the last iteration.
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    grants: u64,
    waits: BTreeMap<u64, u64>,
    errors: u64,
    first_error: Option<String>,
}

impl Task {
    pub(crate) fn new(job: &Arc<Job>, number: u32, counted: Instant, end: Instant) -> Self {
        Self { job: Arc::clone(job), number, counted, end, so_far: Mutex::default() }
    }

    pub(crate) async fn run<L: Locks>(self: Arc<Self>, locks: Arc<L>, mut server: MultiplexedConnection) {
        while Instant::now() < self.end {
            match self.turn(&*locks, &mut server).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    {
                        let mut so_far = self.so_far();
                        so_far.errors += 1;
                        so_far.first_error.get_or_insert_with(|| error.to_string());
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// Returns whether to continue.
    async fn turn<L: Locks>(&self, locks: &L, server: &mut MultiplexedConnection) -> Result<bool, Failure> {
        let key = self.key();
        let asked = Instant::now();
        let held = locks.acquire(&key, Duration::from_millis(self.job.ttl_ms)).await?;
        let granted = Instant::now();
        let more = !self.job.is_sale() || granted > self.end || self.sell(&key, server).await?;
        if asked >= self.counted && granted <= self.end {
            let wait = rounded(u64::try_from((granted - asked).as_micros()).unwrap_or(u64::MAX));
            let mut so_far = self.so_far();
            so_far.grants += 1;
            *so_far.waits.entry(wait).or_default() += 1;
        }
        locks.release(held).await?;
        Ok(more)
    }

    fn key(&self) -> String {
        let Job { key, process, keys, .. } = &*self.job;
        match self.job.workload.as_str() {
            "uncontended" => format!("{key}:{process}:{}", self.number),
            "many-keys" => format!("{key}:{}", rand::random_range(0..*keys)),
            _ => key.clone(),
        }
    }

    /// Returns whether an item was left. Only the lock prevents other sales between reading and writing.
    async fn sell(&self, key: &str, server: &mut MultiplexedConnection) -> Result<bool, Failure> {
        let stock: i64 = server.get(format!("{key}:stock")).await?;
        if stock > 0 {
            let () = server.set(format!("{key}:stock"), stock - 1).await?;
            let () = server.rpush(format!("{key}:sold"), stock).await?;
        }
        Ok(stock > 0)
    }

    fn so_far(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn log_of(tasks: &[Arc<Task>]) -> Log {
    let mut log = Log::default();
    let mut waits: BTreeMap<u64, u64> = BTreeMap::new();
    for task in tasks {
        let so_far = task.so_far();
        log.tasks.push(Share { grants: so_far.grants, refused: 0 });
        for (wait, count) in &so_far.waits {
            *waits.entry(*wait).or_default() += count;
        }
        log.errors += so_far.errors;
        log.first_error = log.first_error.or_else(|| so_far.first_error.clone());
    }
    log.waits = waits.into_iter().collect();
    log
}

/// Rounds to three digits.
fn rounded(micros: u64) -> u64 {
    let unit = 10_u64.pow(micros.checked_ilog10().unwrap_or(0).saturating_sub(2));
    micros.saturating_add(unit / 2) / unit * unit
}
