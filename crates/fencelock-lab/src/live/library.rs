//! The fencelock client with its public API.

use super::NotRun;
use super::job::LiveJob;
use super::request::Request;
use super::work::{AttemptResult, Work};
use fencelock::{Error, Fault, blocking};
use std::time::Duration;

/// How long a transfer that locks one account after the other waits for the second one, in addition to the work of two holders:
/// longer than a holder needs that does not wait itself.
pub(super) const SECOND_WAIT: Duration = Duration::from_millis(100);

pub(super) struct Library {
    client: blocking::Client,
    prefix: String,
    /// The permits of a pool.
    permits: Option<u32>,
    ttl: Duration,
    wait: Duration,
    work: Duration,
    fenced: bool,
    one_by_one: bool,
}

impl Library {
    pub(super) fn new(client: blocking::Client, job: &LiveJob, fenced: bool, one_by_one: bool, wait: Duration) -> Self {
        let (prefix, ttl, work) = (job.prefix.clone(), job.load.ttl, job.load.work);
        Self { client, prefix, permits: job.load.pool(), ttl, wait, work, fenced, one_by_one }
    }

    pub(super) fn attempt(&mut self, request: Request, work: &mut Work<'_>) -> Result<AttemptResult, NotRun> {
        let locks = match request.to {
            Some(to) if self.one_by_one => {
                let Some(own) = or_busy(self.lock(request.account).wait(self.wait).acquire())? else {
                    return Ok(AttemptResult::Busy);
                };
                // As if it read its own account before it turns to the other one.
                std::thread::sleep(self.work);
                match self.lock(to).wait(SECOND_WAIT + self.work * 2).acquire() {
                    Ok(other) => vec![own, other],
                    Err(error) => {
                        own.release()?;
                        let result = if error.is_busy() { AttemptResult::Deadlock } else { AttemptResult::Busy };
                        return or_busy::<()>(Err(error)).map(|_| result).map_err(NotRun::from);
                    }
                }
            }
            _ => match or_busy(self.acquire(request))? {
                Some(locks) => locks,
                None => return Ok(AttemptResult::Busy),
            },
        };
        let tokens: Vec<_> = locks.iter().map(|guard| guard.fencing_token().get()).collect();
        // The client renews by itself.
        let outcome = if !work.begin(if self.fenced { &tokens } else { &[] }, &mut || Ok(()))? {
            AttemptResult::Refused
        } else if locks.iter().any(|guard| guard.check().is_err()) {
            work.leave();
            AttemptResult::GivenUp
        } else if work.end()? {
            AttemptResult::Served
        } else {
            AttemptResult::Refused
        };
        for guard in locks {
            // A loss detected only here was rejected above, or no other client wrote in between.
            guard.release()?;
        }
        Ok(outcome)
    }

    /// All locks of the request together, in the order of its accounts.
    fn acquire(&self, request: Request) -> Result<Vec<blocking::Guard>, Error> {
        if let Some(permits) = self.permits {
            let pool = self.client.semaphore(self.key(request.account), permits).ttl(self.ttl);
            return Ok(vec![pool.wait(self.wait).acquire(1)?]);
        }
        if let Some(to) = request.to {
            let both = self.client.lock_all([request.account, to].map(|account| self.key(account)));
            return Ok(both.ttl(self.ttl).wait(self.wait).acquire()?.into_guards());
        }
        let lock = self.lock(request.account).wait(self.wait);
        let lock = if request.is_reader { lock.shared() } else { lock };
        Ok(vec![lock.acquire()?])
    }

    fn lock(&self, account: u32) -> blocking::Lock {
        self.client.lock(self.key(account)).ttl(self.ttl)
    }

    fn key(&self, account: u32) -> String {
        format!("{}lock:{account}", self.prefix)
    }
}

/// `None` if the wait ended without a lock. On a busy machine a short wait may end before the first reply; whether the server
/// still answers is known from the ledger.
fn or_busy<T>(acquired: Result<T, Error>) -> Result<Option<T>, Error> {
    match acquired {
        Err(Error::Busy { .. }) => Ok(None),
        Err(Error::Unreachable { cause, .. }) if cause.nodes().iter().all(|node| node.fault == Fault::Timeout) => {
            Ok(None)
        }
        acquired => acquired.map(Some),
    }
}
