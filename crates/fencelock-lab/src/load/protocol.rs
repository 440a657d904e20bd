//! What a harness and a worker say to each other: lines on the worker's stdin and stdout.
//!
//! ```text
//! harness                     worker
//! {job}                  ->
//!                        <-   ready          when it is connected
//! go                     ->                  to all workers at once
//!                        <-   tick GRANTS    now and then, if it likes: all grants so far
//!                        <-   {log}
//! ```
//!
//! A worker ends when its stdin does, whatever it is doing. It may be written in any language, with any lock library.
//!
//! # The job
//! A [`Job`] is one line of JSON, such as
//! `{"url":"redis://127.0.0.1:6379","workload":"hot-key","key":"bench","keys":1000,"tasks":64,"process":0,"processes":4,`
//! `"warm_up_ms":500,"span_ms":3000,"ttl_ms":30000}`. Fields that a worker does not know are none of its business.
//!
//! Each task asks for a lock, waits for it as long as it takes, lets it go and asks again, from `go` until the warm-up and the
//! span are over. Then it asks no more, and gives up where it waits. Which lock it asks for, and what it does while it has it,
//! is the [`Workload`].
//!
//! # The log
//! A [`Log`] is one line of JSON, such as
//! `{"tasks":[{"grants":812,"refused":0}],"waits":[[123,800],[4560,12]],"errors":0,"first_error":null}`.
//!
//! A grant counts if it was asked for after the warm-up and came before the end of the span. It counts once in `grants` of its
//! task, and once in `waits`: from asking to having the lock, in microseconds, rounded to three significant digits.

use crate::load::waits::Waits;
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub use crate::workers::{GO, READY};
/// What a line of progress begins with; all grants so far follow, those of the warm-up too.
pub const TICK: &str = "tick ";

/// What tasks ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Each task has a key of its own, `{key}:{process}:{task}`: what a lock costs that nobody else wants.
    Uncontended,
    /// All tasks of all processes want `{key}`, and do nothing while they have it.
    HotKey,
    /// Each time one of `{key}:0` to `{key}:{keys-1}`, all equally likely, drawn by each task for itself from a fixed seed.
    ManyKeys,
    /// A shop. The lock is `{key}`. Under it a task reads the number `{key}:stock`; if there is any, it writes it less one and
    /// appends to the list `{key}:sold`: the fencing token, or anything else where there is none. Nothing but the lock keeps two
    /// apart between reading and writing. A task that finds nothing left is done, and so the run ends when all is sold.
    FlashSale,
}

/// What one worker is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The place where the locks live.
    pub url: String,
    /// Which load.
    pub workload: Workload,
    /// What all keys begin with. The harness removes them afterwards.
    pub key: String,
    /// How many keys there are with [`Workload::ManyKeys`].
    pub keys: u32,
    /// Tasks of this worker: threads, coroutines, whatever asks for one lock at a time.
    pub tasks: u32,
    /// Which worker this is, counted from 0,
    pub process: u32,
    /// of how many.
    pub processes: u32,
    /// How long nothing counts yet, in milliseconds.
    pub warm_up_ms: u64,
    /// How long it counts, in milliseconds.
    pub span_ms: u64,
    /// The TTL of each lock, in milliseconds.
    pub ttl_ms: u64,
    /// Where the stock of a flash sale is: the Redis of `url`, unless it is this directory with the files `stock` and `sold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shop: Option<String>,
    /// How tasks of one worker share leases; nothing to workers that cannot.
    #[serde(default)]
    pub sharing: Sharing,
}

/// The settings of [`fencelock::Builder`], where they are not the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sharing {
    /// Each task claims for itself.
    pub off: bool,
    /// Grants within a worker while others wait: a number, and milliseconds.
    pub batch: Option<(u32, u64)>,
    /// How long a free lease is kept for the next task, in microseconds.
    pub linger_us: u64,
}

/// What one worker tells in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Each task's share.
    pub tasks: Vec<Share>,
    /// How long all of them waited.
    pub waits: Waits,
    /// Wasted wake-ups of no task in particular, as where one asks for all: see [`Share::refused`].
    #[serde(default)]
    pub refused: u64,
    /// Attempts that ended otherwise than with a lock, and locks that were lost before they were let go.
    pub errors: u64,
    /// The first of them in words.
    pub first_error: Option<String>,
    /// How long it took in milliseconds, without the warm-up, if not the whole span: a sale that ended earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// What one task got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Grants that count.
    pub grants: u64,
    /// Wasted wake-ups: how often it had waited, asked again, and was told that the lock is still taken.
    #[serde(default)]
    pub refused: u64,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerMessage {
    /// It is connected.
    Ready,
    /// All grants so far.
    Tick(u64),
    /// The end.
    Log(Box<Log>),
}

impl Job {
    /// As one line, without its end.
    pub fn line(&self) -> String {
        // It has no maps with keys that are not strings, which is all that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From such a line.
    ///
    /// # Errors
    /// What is wrong with it, without repeating it: it may hold a password.
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("not a job: {error}"))
    }

    /// How long nothing counts yet.
    pub fn warm_up(&self) -> Duration {
        Duration::from_millis(self.warm_up_ms)
    }

    /// How long it counts.
    pub fn span(&self) -> Duration {
        Duration::from_millis(self.span_ms)
    }

    /// The TTL of each lock.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

impl WorkerMessage {
    /// As one line, without its end.
    pub fn line(&self) -> String {
        match self {
            Self::Ready => READY.to_owned(),
            Self::Tick(grants) => format!("{TICK}{grants}"),
            Self::Log(log) => serde_json::to_string(log).unwrap_or_default(),
        }
    }

    /// From such a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim_end();
        if line == READY {
            return Ok(Self::Ready);
        }
        if let Some(grants) = line.strip_prefix(TICK) {
            return grants.parse().map(Self::Tick).map_err(|_| format!("not a tick: {line:?}"));
        }
        serde_json::from_str(line).map(|log| Self::Log(Box::new(log))).map_err(|error| format!("not a log: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another language would write it.
    const JOB: &str = r#"{"url":"redis://h:1","workload":"many-keys","key":"bench","keys":1000,"tasks":64,"process":0,
        "processes":4,"warm_up_ms":500,"span_ms":3000,"ttl_ms":30000,"of another version":[1]}"#;

    #[test]
    fn a_job_arrives_as_it_was_sent() {
        let mut job = Job::parse(JOB).unwrap();
        assert_eq!((job.workload, job.span(), job.ttl_ms), (Workload::ManyKeys, Duration::from_secs(3), 30_000));
        assert_eq!((job.shop.as_ref(), &job.sharing), (None, &Sharing::default()));
        for workload in [Workload::Uncontended, Workload::HotKey, Workload::ManyKeys, Workload::FlashSale] {
            job.workload = workload;
            job.shop = Some("/tmp/x".to_owned());
            job.sharing = Sharing { off: true, batch: Some((3, 4)), linger_us: 5 };
            assert_eq!(Job::parse(&job.line()).unwrap(), job);
            assert!(!job.line().contains('\n'));
        }
    }

    #[test]
    fn workloads_have_the_names_that_people_type() {
        let names = [Workload::Uncontended, Workload::HotKey, Workload::ManyKeys, Workload::FlashSale]
            .map(|workload| serde_json::to_string(&workload).unwrap());
        assert_eq!(names.join(" "), r#""uncontended" "hot-key" "many-keys" "flash-sale""#);
    }

    #[test]
    fn what_a_worker_says_arrives_as_it_was_sent() {
        let log = r#"{"tasks":[{"grants":812,"refused":1},{"grants":3}],"waits":[[123,800],[4560,12]],"errors":0,"first_error":null}"#;
        let WorkerMessage::Log(log) = WorkerMessage::parse(log).unwrap() else { panic!("not a log") };
        assert_eq!((log.tasks[0].grants, log.tasks[1].refused, log.waits.count()), (812, 0, 812));
        for word in [WorkerMessage::Ready, WorkerMessage::Tick(7), WorkerMessage::Log(log)] {
            assert_eq!(WorkerMessage::parse(&(word.line() + "\n")).unwrap(), word);
        }
    }

    #[test]
    fn what_is_not_understood_is_said_without_a_password() {
        let told = Job::parse(r#"{"url":"redis://u:s3cret@h","workload":"nonsense"}"#).unwrap_err();
        assert!(told.starts_with("not a job") && !told.contains("s3cret"), "{told}");
        for line in ["", "tick x", "{}", "hello"] {
            assert!(WorkerMessage::parse(line).is_err(), "{line:?}");
        }
    }
}
