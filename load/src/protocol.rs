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
//! three significant digits.

use crate::waits::Waits;
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
    /// The directory with the files `stock` and `sold` of a flash sale; without it, the stock is on the Redis server of
    /// `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shop: Option<String>,
    /// Each task sends its own claims. Workers whose tasks share no leases ignore it.
    #[serde(default)]
    pub unshared: bool,
}

/// The result of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The grants of each task.
    pub tasks: Vec<Share>,
    /// The waiting times of all tasks.
    pub waits: Waits,
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
    pub(crate) fn of_one_key() -> Self {
        let job = r#"{"url":"memory:","workload":"hot-key","key":"k","keys":1,"tasks":2,"process":0,"processes":1,
            "warm_up_ms":100,"span_ms":100,"ttl_ms":1}"#;
        Self::parse(job).unwrap()
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
