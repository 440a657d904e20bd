//! Faults of clients.

use super::{POLLS, SLICE};
use crate::Failure;
use crate::fault::Fault;
use crate::phases::Inspect;
use crate::plan::ScheduledFault;
use crate::recorder::Recorder;
use crate::workers::Workers;
use crate::workload::ELECTION;
use std::time::Duration;

/// The maximum number of stops until a client has lost a lock.
const REPEATS: u32 = 5;

/// The workers, and what they hold.
pub(crate) struct ClientNemesis<'a> {
    pub(crate) workers: &'a mut Workers,
    pub(crate) recorder: &'a Recorder,
    pub(crate) keys: &'a [String],
    pub(crate) ttl: Duration,
    pub(crate) inspect: &'a Inspect<'a>,
    /// The number of servers on which a lock must be.
    pub(crate) quorum: usize,
}

impl ClientNemesis<'_> {
    /// Stops or kills a worker while it holds a lock.
    pub(crate) fn inject(&mut self, step: &ScheduledFault) -> Result<(), Failure> {
        if step.fault == Fault::KillClient {
            return self.kill(step.victim);
        }
        self.freeze_holder(step.victim)?;
        std::thread::sleep(self.ttl + step.lasts);
        self.workers.thaw(step.victim)?;
        // The client may have abandoned the hold to its lease; then there is no loss.
        for _ in 0..REPEATS {
            std::thread::sleep(SLICE);
            // One event is enough for a run, and reading all histories takes long.
            if self.recorder.knows("lost by expiry") || self.workers.has_seen("lost by expiry")? {
                self.recorder.seen("lost by expiry");
                break;
            }
            self.freeze_holder(step.victim)?;
            std::thread::sleep(self.ttl + step.lasts);
            self.workers.thaw(step.victim)?;
        }
        Ok(())
    }

    /// Kills a worker while it leads an election; otherwise, while it holds any lock.
    fn kill(&mut self, worker: usize) -> Result<(), Failure> {
        let leads = self.freeze_holder_of(worker, &[ELECTION.to_owned()])?;
        let holds = leads || {
            self.workers.thaw(worker)?;
            self.freeze_holder(worker)?
        };
        self.workers.replace(worker)?;
        for (is_it, what) in [(leads, "a leader that was killed"), (holds, "a holder that was killed")] {
            if is_it {
                self.recorder.seen(what);
            }
        }
        Ok(())
    }

    /// Stops the process while it holds a lock, or gives up after many attempts; returns whether it holds one.
    pub(super) fn freeze_holder(&self, worker: usize) -> Result<bool, Failure> {
        self.freeze_holder_of(worker, self.keys)
    }

    /// It must have held the lock before as well, because a process that is stopped may not know of a new hand-off.
    fn freeze_holder_of(&self, worker: usize, keys: &[String]) -> Result<bool, Failure> {
        for _ in 0..POLLS {
            let before = self.held_by(worker, keys);
            if !before.is_empty() {
                self.workers.freeze(worker)?;
                if self.held_by(worker, keys).iter().any(|value| before.contains(value)) {
                    return Ok(true);
                }
                self.workers.thaw(worker)?;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        self.workers.freeze(worker)?;
        Ok(false)
    }

    /// The values of the locks that a process has acquired recently. The remains of a failed quorum round on a few nodes
    /// do not count, and a lock close to its end was probably abandoned.
    fn held_by(&self, worker: usize, keys: &[String]) -> Vec<String> {
        let mark = format!(":{} ", self.workers.pid(worker));
        let half = i64::try_from(self.ttl.as_millis() / 2).unwrap_or(i64::MAX);
        let held = keys.iter().filter_map(|key| {
            let mut its = (self.inspect)(key);
            its.retain(|(value, left)| value.contains(&mark) && *left > half);
            (its.len() >= self.quorum).then(|| its.swap_remove(0).0)
        });
        held.collect()
    }
}
