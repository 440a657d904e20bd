use crate::load::error::NotMeasured;
use crate::load::protocol::{Job, Sharing, Workload};
use fencelock::Key;
use fencelock::backends::scheme_of;
use std::time::Duration;

/// What is to be measured, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The place where the locks live.
    pub url: String,
    /// Which load.
    pub workload: Workload,
    /// Worker processes.
    pub processes: u32,
    /// Tasks of each.
    pub tasks: u32,
    /// Keys of [`Workload::ManyKeys`].
    pub keys: u32,
    /// How long nothing counts yet. A sale has none: what is sold is sold.
    pub warm_up: Duration,
    /// How long it counts, at most.
    pub span: Duration,
    /// The TTL of each lock.
    pub ttl: Duration,
    /// Pieces of [`Workload::FlashSale`].
    pub stock: u64,
    /// What all keys begin with. A number of the run follows, so that two runs do not meet.
    pub key: String,
    /// How tasks of one process share leases.
    pub sharing: Sharing,
}

impl Plan {
    /// Two processes of 64 tasks, for three seconds after half a second of warm-up.
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
            sharing: Sharing::default(),
        }
    }

    /// How long nothing counts yet, with this load.
    pub fn warm_up(&self) -> Duration {
        if self.workload == Workload::FlashSale { Duration::ZERO } else { self.warm_up }
    }

    /// Refuses what would measure nothing.
    pub(crate) fn check(&self) -> Result<(), NotMeasured> {
        if self.processes > 1 && !scheme_of(&self.url)?.cross_process() {
            return Err(NotMeasured::Plan(format!(
                "{} is the memory of one process, so {} processes would not share a lock: take one process, or file:DIR",
                self.url, self.processes
            )));
        }
        if self.processes == 0 || self.tasks == 0 || self.keys == 0 || self.span.is_zero() {
            return Err(NotMeasured::Plan("a load has at least one process, task, key and millisecond".to_owned()));
        }
        Ok(())
    }

    /// A part for each worker, with the URL and the keys of this run.
    pub(crate) fn jobs(&self, url: &str, base: &str, shop: Option<&str>) -> Vec<Job> {
        let job = |process| Job {
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
            sharing: self.sharing.clone(),
        };
        (0..self.processes).map(job).collect()
    }

    /// Every lock that this run may have taken.
    pub(crate) fn locks(&self, base: &str) -> Result<Vec<Key>, fencelock::Invalid> {
        let name = Key::new(base);
        match self.workload {
            Workload::HotKey | Workload::FlashSale => Ok(vec![name?]),
            Workload::ManyKeys => (0..self.keys).map(|number| Key::new(one_of_many(base, number))).collect(),
            Workload::Uncontended => {
                let places = (0..self.processes).flat_map(|process| (0..self.tasks).map(move |task| (process, task)));
                places.map(|(process, task)| Key::new(own(base, process, task))).collect()
            }
        }
    }
}

/// The key that one task has to itself.
pub(crate) fn own(base: &str, process: u32, task: u32) -> String {
    format!("{base}:{process}:{task}")
}

/// One of many keys.
pub(crate) fn one_of_many(base: &str, number: u32) -> String {
    format!("{base}:{number}")
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
