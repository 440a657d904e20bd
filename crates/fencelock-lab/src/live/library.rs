//! The fencelock client with its public API.

use super::NotRun;
use super::job::LiveJob;
use super::work::{AttemptResult, Work};
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
    pub(super) fn new(client: blocking::Client, job: &LiveJob, fenced: bool, wait: Duration) -> Self {
        Self { client, prefix: job.prefix.clone(), ttl: job.load.ttl, wait, fenced }
    }

    pub(super) fn attempt(&mut self, account: u32, work: &mut Work<'_>) -> Result<AttemptResult, NotRun> {
        let lock = self.client.lock(format!("{}lock:{account}", self.prefix)).ttl(self.ttl).wait(self.wait);
        let guard = match lock.acquire() {
            Ok(guard) => guard,
            Err(Error::Busy { .. }) => return Ok(AttemptResult::Busy),
            Err(error) => return Err(error.into()),
        };
        let token = self.fenced.then(|| guard.fencing_token().get());
        // The client renews by itself.
        let outcome = if !work.begin(token, &mut || Ok(()))? {
            AttemptResult::Refused
        } else if guard.check().is_err() {
            AttemptResult::GivenUp
        } else if work.end()? {
            AttemptResult::Served
        } else {
            AttemptResult::Refused
        };
        // A loss detected only here was rejected above, or no other client wrote in between.
        guard.release()?;
        Ok(outcome)
    }
}
