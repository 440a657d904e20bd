use crate::error::NotMeasured;
use crate::locks::{one_of_many, own};
use crate::protocol::{LoadJob, Workload};
use fencelock::Key;
use fencelock::backends::scheme_of;
use std::time::Duration;

/// The greatest number of locks of one run. They are removed one by one.
const MAX_LOCKS: u32 = 1_000_000;

/// The parameters of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The URL of the backend.
    pub url: String,
    /// The workload.
    pub workload: Workload,
    /// The number of worker processes.
    pub processes: u32,
    /// The number of tasks of each process.
    pub tasks: u32,
    /// The number of keys of [`Workload::ManyKeys`].
    pub keys: u32,
    /// The warm-up, which is not measured. A flash sale has none, because every sale counts.
    pub warm_up: Duration,
    /// The maximum measured time.
    pub span: Duration,
    /// The TTL of each lock.
    pub ttl: Duration,
    /// The initial stock of [`Workload::FlashSale`].
    pub stock: u64,
    /// The prefix of all keys. A random number follows, so that concurrent runs use different keys.
    pub key: String,
    /// Each task sends its own claims.
    pub unshared: bool,
}

impl Plan {
    /// Two processes of 64 tasks, measured for three seconds after a warm-up of half a second.
    pub fn new(url: impl Into<String>, workload: Workload) -> Self {
        Self {
            url: url.into(),
            workload,
            processes: 2,
            tasks: 64,
            keys: 1000,
            warm_up: Duration::from_millis(500),
            span: Duration::from_secs(3),
            ttl: Duration::from_secs(30),
            stock: 10_000,
            key: "fencelock-bench".to_owned(),
            unshared: false,
        }
    }

    /// The warm-up of this workload.
    pub fn warm_up(&self) -> Duration {
        if self.workload == Workload::FlashSale { Duration::ZERO } else { self.warm_up }
    }

    /// Rejects a plan that measures nothing.
    pub(crate) fn check(&self) -> Result<(), NotMeasured> {
        if self.processes > 1 && !scheme_of(&self.url)?.cross_process() {
            return Err(NotMeasured::Plan(format!(
                "{} exists only within one process, so {} processes cannot share its locks: use one process, or file:DIR",
                self.url, self.processes
            )));
        }
        if self.key_count() > MAX_LOCKS {
            return Err(NotMeasured::Plan(format!(
                "{} locks are too many to remove after the run: use fewer tasks or keys, at most {MAX_LOCKS}",
                self.key_count()
            )));
        }
        if self.processes == 0 || self.tasks == 0 || self.keys == 0 || self.span.is_zero() {
            return Err(NotMeasured::Plan(
                "a load needs at least one process, one task, one key and one millisecond".to_owned(),
            ));
        }
        Ok(())
    }

    /// The job of each worker, with the URL and the keys of this run.
    pub(crate) fn jobs(&self, url: &str, base: &str, shop: Option<&str>) -> Vec<LoadJob> {
        let job = |process| LoadJob {
            url: url.to_owned(),
            workload: self.workload,
            key: base.to_owned(),
            keys: self.keys,
            tasks: self.tasks,
            process,
            processes: self.processes,
            warm_up_ms: millis(self.warm_up()),
            span_ms: millis(self.span),
            ttl_ms: millis(self.ttl),
            shop: shop.map(str::to_owned),
            unshared: self.unshared,
        };
        (0..self.processes).map(job).collect()
    }

    /// The number of keys.
    pub(crate) fn key_count(&self) -> u32 {
        match self.workload {
            Workload::HotKey | Workload::FlashSale => 1,
            Workload::ManyKeys => self.keys,
            Workload::Uncontended => self.processes.saturating_mul(self.tasks),
        }
    }

    /// All locks that this run may have acquired.
    pub(crate) fn locks(&self, base: &str) -> Result<Vec<Key>, fencelock::Invalid> {
        let keys: Vec<String> = match self.workload {
            Workload::HotKey | Workload::FlashSale => vec![base.to_owned()],
            Workload::ManyKeys => (0..self.keys).map(|number| one_of_many(base, number)).collect(),
            Workload::Uncontended => {
                let numbers = (0..self.processes).flat_map(|process| (0..self.tasks).map(move |task| (process, task)));
                numbers.map(|(process, task)| own(base, process, task)).collect()
            }
        };
        keys.into_iter().map(Key::new).collect()
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
