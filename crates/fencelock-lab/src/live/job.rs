//! The job and the tally of a worker process, each one line of JSON.

use super::{Load, NotRun};
use crate::load::HoldChange;
use crate::server::ServerConnection;
use redis::RedisResult;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The job of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveJob {
    pub(super) url: String,
    /// The prefix or a part of the name of every key.
    pub(super) prefix: String,
    pub(super) scheme: String,
    pub(super) process: u32,
    pub(super) load: Load,
}

/// The result of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests that were served: sold, or sold out.
    pub answered: u64,
    /// Attempts that found the lock taken, and were retried.
    pub busy: u64,
    /// Late reads and writes rejected by the fencing token, and retried.
    pub refused: u64,
    /// Writes skipped because the holder detected the loss of its lock, and retried.
    pub given_up: u64,
    /// Requests that were never served because the lock was stalled.
    pub stuck: u64,
    /// Waits for the second lock of a transfer that ended without it, while the first one was held.
    pub deadlocks: u64,
    /// Reads of the stock that changed while the reader had the lock.
    pub torn: u64,
    /// How many requests of the process held a lock of readers or a permit at which time.
    pub holds: Vec<HoldChange>,
}

impl LiveJob {
    /// A connection for the process.
    pub(super) fn connect(&self) -> RedisResult<ServerConnection> {
        if self.load.pause {
            ServerConnection::connect_to_be_stopped(&self.url)
        } else {
            ServerConnection::connect(&self.url)
        }
    }

    /// The job as one line.
    pub fn line(&self) -> String {
        line(self)
    }

    /// Parses a job.
    ///
    /// # Errors
    /// [`NotRun::Job`] if the line is not a job.
    pub fn parse(line: &str) -> Result<Self, NotRun> {
        parse(line)
    }
}

impl Tally {
    /// The tally as one line.
    pub fn line(&self) -> String {
        line(self)
    }

    /// Parses a tally.
    ///
    /// # Errors
    /// [`NotRun::Job`] if the line is not a tally.
    pub fn parse(line: &str) -> Result<Self, NotRun> {
        parse(line)
    }

    /// Adds the counts.
    pub(super) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.busy += other.busy;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.stuck += other.stuck;
        self.deadlocks += other.deadlocks;
        self.torn += other.torn;
    }
}

fn line(what: &impl Serialize) -> String {
    // Serialization fails only for maps whose keys are not strings, and there are none.
    serde_json::to_string(what).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T, NotRun> {
    serde_json::from_str(line).map_err(|error| NotRun::Job(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::WorkloadKind;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_job_and_a_tally_survive_the_round_trip() {
        let load = Load {
            workload: WorkloadKind::Bank,
            processes: 3,
            requests: 40,
            stock: 7,
            permits: 3,
            work: Duration::from_millis(2),
            ttl: Duration::from_millis(300),
            sleep: Some(Duration::from_millis(700)),
            crash: true,
            pause: true,
        };
        let [url, prefix, scheme] = ["redis://h", "p:", "none"].map(str::to_owned);
        let job = LiveJob { url, prefix, scheme, process: 2, load };
        assert_eq!(LiveJob::parse(&job.line()).unwrap(), job);
        let holds = vec![HoldChange(8, 0, 9)];
        let tally = Tally { answered: 1, busy: 2, refused: 3, given_up: 4, stuck: 5, deadlocks: 6, torn: 7, holds };
        assert_eq!(Tally::parse(&tally.line()).unwrap(), tally);
        assert!(matches!(LiveJob::parse("{}"), Err(NotRun::Job(_))));
    }
}
