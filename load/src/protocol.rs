//! The protocol between harness and worker: lines on the stdin and stdout of the worker.
//!
//! ```text
//! harness                     worker
//! {job}                  ->
//!                        <-   ready          when it is connected
//! go                     ->                  to all workers at once
//!                        <-   {log}
//! ```
//!
//! A worker exits when its stdin ends. It may be written in any language, with any lock library.
//!
//! # The job
//! A [`LoadJob`] is one line of JSON, such as
//! `{"url":"redis://127.0.0.1:6379","workload":"hot-key","key":"bench","keys":1000,"tasks":64,"process":0,"processes":4,`
//! `"warm_up_ms":500,"span_ms":3000,"ttl_ms":30000}`. Workers ignore unknown fields.
//!
//! Each task acquires a lock, waits as long as necessary, releases it and repeats this, from `go` until the warm-up and
//! the span are over. Then it stops, and cancels a pending attempt. The [`Workload`] defines which lock it acquires,
//! and what it does while it holds the lock.
//!
//! # The log
//! A [`Log`] is one line of JSON, such as
//! `{"tasks":[{"grants":812,"refused":0}],"waits":[[123,800],[4560,12]],"errors":0,"first_error":null}`.
//!
//! A grant counts if its request was made after the warm-up, and it arrived before the end of the span. It counts once
//! in `grants` of its task, and once in `waits`: the time from the request to the grant in microseconds, rounded to
//! three significant digits. Waits of exclusive locks among shared ones are also in `writer_waits`.
//!
//! With any other mode than exclusive locks, and one key, `holds` says what the tasks hold together, `[MICROSECONDS,EXCLUSIVE,OTHERS]`
//! after each change, up to [`MAX_CHANGES`](crate::MAX_CHANGES) of them after the warm-up.

use crate::waits::Waits;
use fencelock::{Builder, Client};
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub use crate::workers::{GO, READY};

/// The keys that tasks acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Each task has its own key, `{key}:{process}:{task}`: the cost of an uncontended lock.
    Uncontended,
    /// All tasks of all processes acquire `{key}`, and do nothing while they hold it.
    HotKey,
    /// Each time one of `{key}:0` to `{key}:{keys-1}`, chosen uniformly by each task with a fixed seed.
    ManyKeys,
    /// A flash sale. The lock is `{key}`. Its holder reads the number `{key}:stock`. If it is positive, the holder
    /// writes it minus one and appends to the list `{key}:sold`: the fencing token, or any value if the library has
    /// none. Only the lock prevents two tasks from overlapping between reading and writing. A task that reads zero is
    /// finished, so the run ends when all is sold.
    FlashSale,
}

/// The locks that the tasks request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadMode {
    /// Exclusive locks.
    #[default]
    Exclusive,
    /// Shared locks, and some exclusive ones.
    Shared {
        /// How many of a million claims are exclusive, chosen by each task with a fixed seed.
        writers_ppm: u32,
    },
    /// Permits of semaphores.
    Permits {
        /// The permits of each semaphore.
        limit: u32,
        /// The permits of each claim.
        weight: u32,
    },
    /// Numbered slots, of which each task takes one.
    Slots {
        /// The number of slots of each key.
        slots: u32,
    },
    /// Exclusive locks on several keys, of which each task gets all or none: `{key}:0` and so on in place of `{key}`, and with
    /// [`Workload::ManyKeys`] that many different ones.
    Together {
        /// The number of keys.
        keys: u32,
    },
}

impl LoadMode {
    /// The number of keys that a task acquires at once.
    pub(crate) const fn keys(self) -> u32 {
        if let Self::Together { keys } = self { keys } else { 1 }
    }

    /// The most permits or slots that may be in use at once.
    pub(crate) const fn limit(self) -> Option<u32> {
        match self {
            Self::Permits { limit, .. } => Some(limit),
            Self::Slots { slots } => Some(slots),
            Self::Exclusive | Self::Shared { .. } | Self::Together { .. } => None,
        }
    }
}

/// The job of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadJob {
    /// The URL of the backend.
    pub url: String,
    /// The workload.
    pub workload: Workload,
    /// The prefix of all keys. The harness removes them after the run.
    pub key: String,
    /// The number of keys of [`Workload::ManyKeys`].
    pub keys: u32,
    /// The number of tasks of this worker: threads, coroutines, or anything that acquires one lock at a time.
    pub tasks: u32,
    /// The number of this worker, from 0.
    pub process: u32,
    /// The number of workers.
    pub processes: u32,
    /// The warm-up in milliseconds, which is not measured.
    pub warm_up_ms: u64,
    /// The measured time in milliseconds.
    pub span_ms: u64,
    /// The TTL of each lock, in milliseconds.
    pub ttl_ms: u64,
    /// The locks that the tasks request; exclusive locks by default.
    #[serde(default)]
    pub mode: LoadMode,
    /// The directory with the files `stock` and `sold` of a flash sale; without it, the stock is on the Redis server of
    /// `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shop: Option<String>,
    /// How the tasks of one worker share leases. Workers without this feature ignore it.
    #[serde(default)]
    pub sharing: Sharing,
}

/// Settings of [`fencelock::Builder`] that differ from the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sharing {
    /// Each task sends its own claims.
    pub off: bool,
    /// Grants within a worker while other clients wait: the maximum number, and milliseconds.
    pub batch: Option<(u32, u64)>,
    /// How long a free lease is kept for the next task, in microseconds.
    pub idle_timeout_us: u64,
}

impl Sharing {
    /// A client with these settings. Its connection refuses those that the backend does not support.
    pub(super) fn client(&self) -> Builder {
        let builder = Client::builder().sharing(!self.off).idle_timeout(Duration::from_micros(self.idle_timeout_us));
        match self.batch {
            Some((grants, span)) => builder.batch(grants, Duration::from_millis(span)),
            None => builder,
        }
    }
}

/// What the tasks of one worker hold together, from a time on: three numbers in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldChange(
    /// Microseconds on a clock that all workers of one library share.
    pub u64,
    /// The number of exclusive holds.
    pub u32,
    /// The permits in use; for shared locks 1 if any task has one.
    pub u32,
);

/// The result of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The grants of each task.
    pub tasks: Vec<Share>,
    /// The waiting times of all tasks.
    pub waits: Waits,
    /// The waiting times of exclusive locks among shared ones.
    #[serde(default, skip_serializing_if = "Waits::is_empty")]
    pub writer_waits: Waits,
    /// What the tasks hold together, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldChange>,
    /// Wasted wake-ups that belong to no single task, for example if one task claims for all: see [`Share::refused`].
    #[serde(default)]
    pub refused: u64,
    /// Attempts that ended without a lock, and locks that were lost before their release.
    pub errors: u64,
    /// The text of the first error.
    pub first_error: Option<String>,
    /// The measured time in milliseconds, without the warm-up, if it is shorter than the span: a flash sale that ended
    /// early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// The result of one task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The number of counted grants.
    pub grants: u64,
    /// Wasted wake-ups: how often the task retried after a wait, and the lock was still held.
    #[serde(default)]
    pub refused: u64,
}

/// A message of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerMessage {
    /// The worker is connected.
    Ready,
    /// The result.
    Log(Box<Log>),
}

impl LoadJob {
    /// The job as one line, without the line end.
    pub fn line(&self) -> String {
        // Serialization fails only for maps whose keys are not strings, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A job of two tasks with one key, for the tests of what records a run.
    #[cfg(test)]
    pub(crate) fn of_one_key(mode: LoadMode) -> Self {
        let job = r#"{"url":"memory:","workload":"hot-key","key":"k","keys":1,"tasks":2,"process":0,"processes":1,
            "warm_up_ms":100,"span_ms":100,"ttl_ms":1}"#;
        Self { mode, ..Self::parse(job).unwrap() }
    }

    /// Parses a job.
    ///
    /// # Errors
    /// Describes the error without the input, which may contain a password.
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("not a job: {error}"))
    }

    /// The warm-up, which is not measured.
    pub fn warm_up(&self) -> Duration {
        Duration::from_millis(self.warm_up_ms)
    }

    /// The measured time.
    pub fn span(&self) -> Duration {
        Duration::from_millis(self.span_ms)
    }

    /// The TTL of each lock.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

impl WorkerMessage {
    /// The message as one line, without the line end.
    pub fn line(&self) -> String {
        match self {
            Self::Ready => READY.to_owned(),
            Self::Log(log) => serde_json::to_string(log).unwrap_or_default(),
        }
    }

    /// Parses a message.
    ///
    /// # Errors
    /// Describes the error.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim_end();
        if line == READY {
            return Ok(Self::Ready);
        }
        serde_json::from_str(line).map(|log| Self::Log(Box::new(log))).map_err(|error| format!("not a log: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of a worker in another language.
    const JOB: &str = r#"{"url":"redis://h:1","workload":"many-keys","key":"bench","keys":1000,"tasks":64,"process":0,
        "processes":4,"warm_up_ms":500,"span_ms":3000,"ttl_ms":30000,"of another version":[1]}"#;

    #[test]
    fn a_job_survives_the_round_trip() {
        let mut job = LoadJob::parse(JOB).unwrap();
        assert_eq!((job.workload, job.span(), job.ttl_ms), (Workload::ManyKeys, Duration::from_secs(3), 30_000));
        assert_eq!((job.shop.as_ref(), &job.sharing), (None, &Sharing::default()));
        assert_eq!(job.mode, LoadMode::Exclusive);
        job.mode = LoadMode::Together { keys: 2 };
        assert!(job.line().contains(r#""mode":{"together":{"keys":2}}"#), "{}", job.line());
        assert_eq!(LoadJob::parse(&job.line()).unwrap(), job);
        job.mode = LoadMode::Shared { writers_ppm: 10_000 };
        for workload in [Workload::Uncontended, Workload::HotKey, Workload::ManyKeys, Workload::FlashSale] {
            job.workload = workload;
            job.shop = Some("/tmp/x".to_owned());
            job.sharing = Sharing { off: true, batch: Some((3, 4)), idle_timeout_us: 5 };
            assert_eq!(LoadJob::parse(&job.line()).unwrap(), job);
            assert!(!job.line().contains('\n'));
        }
    }

    #[test]
    fn workloads_have_the_names_of_the_command_line() {
        let names = [Workload::Uncontended, Workload::HotKey, Workload::ManyKeys, Workload::FlashSale]
            .map(|workload| serde_json::to_string(&workload).unwrap());
        assert_eq!(names.join(" "), r#""uncontended" "hot-key" "many-keys" "flash-sale""#);
    }

    #[test]
    fn a_worker_message_survives_the_round_trip() {
        let log = r#"{"tasks":[{"grants":812,"refused":1},{"grants":3}],"waits":[[123,800],[4560,12]],"errors":0,"first_error":null}"#;
        let WorkerMessage::Log(log) = WorkerMessage::parse(log).unwrap() else { panic!("not a log") };
        assert_eq!((log.tasks[0].grants, log.tasks[1].refused, log.waits.count()), (812, 0, 812));
        for word in [WorkerMessage::Ready, WorkerMessage::Log(log)] {
            assert_eq!(WorkerMessage::parse(&(word.line() + "\n")).unwrap(), word);
        }
    }

    #[test]
    fn parse_errors_do_not_contain_passwords() {
        let error = LoadJob::parse(r#"{"url":"redis://u:s3cret@h","workload":"nonsense"}"#).unwrap_err();
        assert!(error.starts_with("not a job") && !error.contains("s3cret"), "{error}");
        for line in ["", "{}", "hello"] {
            assert!(WorkerMessage::parse(line).is_err(), "{line:?}");
        }
    }
}
