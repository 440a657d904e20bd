//! What a process is told, and what it tells in the end. Both are one line of JSON.

use super::{Load, NotRun, Story};
use crate::server::Server;
use redis::RedisResult;
use serde_json::{Value, json};
use std::time::Duration;

/// The part of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub(super) url: String,
    /// Every key begins with it, or has it in its name.
    pub(super) prefix: String,
    pub(super) scheme: String,
    pub(super) process: u32,
    pub(super) load: Load,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were answered: sold, or sold out.
    pub answered: u64,
    /// How often somebody was told that the lock is taken, and came again.
    pub busy: u64,
    /// Late reads and writes that were refused for their token. Their requests came again.
    pub refused: u64,
    /// Writes that were not tried, as their holder had found its lock lost. Their requests came again.
    pub given_up: u64,
    /// Requests that were never answered, because nobody got the lock any more.
    pub stuck: u64,
}

impl Job {
    /// A connection for its process.
    pub(super) fn connect(&self) -> RedisResult<Server> {
        if self.load.pause { Server::connect_to_be_stopped(&self.url) } else { Server::connect(&self.url) }
    }

    /// As one line.
    pub fn line(&self) -> String {
        let load = &self.load;
        json!({
            "url": self.url, "prefix": self.prefix, "scheme": self.scheme, "process": self.process,
            "story": match load.story { Story::Stock => "stock", Story::Bank => "bank" },
            "processes": load.processes, "requests": load.requests, "stock": load.stock,
            "work_ms": millis(load.work), "ttl_ms": millis(load.ttl), "sleep_ms": load.sleep.map(millis),
            "crash": load.crash, "pause": load.pause,
        })
        .to_string()
    }

    /// From such a line.
    ///
    /// # Errors
    /// [`NotRun::Job`] if it is none.
    pub fn parse(line: &str) -> Result<Self, NotRun> {
        // The line may hold a password.
        let value: Value = serde_json::from_str(line).map_err(|error| NotRun::Job(error.to_string()))?;
        let missing = |name: &str| NotRun::Job(format!("no {name}"));
        let text = |name: &str| value[name].as_str().map(str::to_owned).ok_or_else(|| missing(name));
        let count =
            |name: &str| value[name].as_u64().and_then(|count| u32::try_from(count).ok()).ok_or_else(|| missing(name));
        let span = |name: &str| value[name].as_u64().map(Duration::from_millis);
        let story = match text("story")?.as_str() {
            "stock" => Story::Stock,
            "bank" => Story::Bank,
            _ => return Err(missing("story")),
        };
        let load = Load {
            story,
            processes: count("processes")?,
            requests: count("requests")?,
            stock: count("stock")?,
            work: span("work_ms").ok_or_else(|| missing("work_ms"))?,
            ttl: span("ttl_ms").ok_or_else(|| missing("ttl_ms"))?,
            sleep: span("sleep_ms"),
            crash: value["crash"] == true,
            pause: value["pause"] == true,
        };
        Ok(Self {
            url: text("url")?,
            prefix: text("prefix")?,
            scheme: text("scheme")?,
            process: count("process")?,
            load,
        })
    }
}

impl Tally {
    /// As one line.
    pub fn line(&self) -> String {
        json!({
            "answered": self.answered, "busy": self.busy, "refused": self.refused, "given_up": self.given_up,
            "stuck": self.stuck,
        })
        .to_string()
    }

    /// From such a line.
    ///
    /// # Errors
    /// [`NotRun::Job`] if it is none.
    pub fn parse(line: &str) -> Result<Self, NotRun> {
        let value: Value = serde_json::from_str(line).map_err(|error| NotRun::Job(error.to_string()))?;
        let count = |name: &str| value[name].as_u64().ok_or_else(|| NotRun::Job(format!("no {name}")));
        Ok(Self {
            answered: count("answered")?,
            busy: count("busy")?,
            refused: count("refused")?,
            given_up: count("given_up")?,
            stuck: count("stuck")?,
        })
    }

    pub(super) fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.busy += other.busy;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.stuck += other.stuck;
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_and_a_tally_arrive_as_they_were_sent() {
        let load = Load {
            story: Story::Bank,
            processes: 3,
            requests: 40,
            stock: 7,
            work: Duration::from_millis(2),
            ttl: Duration::from_millis(300),
            sleep: Some(Duration::from_millis(700)),
            crash: true,
            pause: true,
        };
        let [url, prefix, scheme] = ["redis://h", "p:", "none"].map(str::to_owned);
        let job = Job { url, prefix, scheme, process: 2, load };
        assert_eq!(Job::parse(&job.line()).unwrap(), job);
        let tally = Tally { answered: 1, busy: 2, refused: 3, given_up: 4, stuck: 5 };
        assert_eq!(Tally::parse(&tally.line()).unwrap(), tally);
        assert!(matches!(Job::parse("{}"), Err(NotRun::Job(_))));
    }
}
