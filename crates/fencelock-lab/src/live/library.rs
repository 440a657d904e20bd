//! This project's own client, as its users have it.

use super::NotRun;
use super::job::Job;
use super::work::{Outcome, Work};
use fencelock::{Error, blocking};
use std::time::Duration;

pub(super) struct Library {
    client: blocking::Client,
    prefix: String,
    ttl: Duration,
    wait: Duration,
    fenced: bool,
}

impl Library {
    pub(super) fn new(client: blocking::Client, job: &Job, fenced: bool, wait: Duration) -> Self {
        Self { client, prefix: job.prefix.clone(), ttl: job.load.ttl, wait, fenced }
    }

    pub(super) fn attempt(&mut self, account: u32, work: &mut Work<'_>) -> Result<Outcome, NotRun> {
        let lock = self.client.lock(format!("{}lock:{account}", self.prefix)).ttl(self.ttl).wait(self.wait);
        let guard = match lock.acquire() {
            Ok(guard) => guard,
            Err(Error::Busy { .. }) => return Ok(Outcome::Busy),
            Err(error) => return Err(error.into()),
        };
        let token = self.fenced.then(|| guard.fencing_token().get());
        // The client renews by itself.
        let outcome = if !work.begin(token, &mut || Ok(()))? {
            Outcome::Refused
        } else if guard.check().is_err() {
            Outcome::GivenUp
        } else if work.end()? {
            Outcome::Served
        } else {
            Outcome::Refused
        };
        // A loss that is told only here was either refused above, or nobody else was in the way of the write.
        guard.release()?;
        Ok(outcome)
    }
}
