//! Faults of clients.

use super::{Nemesis, POLLS, SLICE};
use crate::Failure;
use crate::fault::Fault;
use crate::plan::Step;
use std::time::Duration;

/// The maximum number of stops until a client has lost a lock.
const REPEATS: u32 = 5;

impl Nemesis {
    pub(super) fn with_client(&mut self, step: &Step) -> Result<(), Failure> {
        let holds = self.until_it_holds(step.victim)?;
        if step.fault == Fault::KillClient {
            self.workers.replace(step.victim)?;
            if holds {
                self.recorder.seen("a holder that was killed");
            }
            return Ok(());
        }
        std::thread::sleep(self.ttl + step.lasts);
        self.workers.thaw(step.victim)?;
        // The client may have abandoned the hold to its lease, and then it loses nothing.
        for _ in 0..REPEATS {
            std::thread::sleep(SLICE);
            // One event is enough for a run, and reading all histories takes long in a long run.
            if self.recorder.knows("lost by expiry") || self.workers.has_seen("lost by expiry")? {
                self.recorder.seen("lost by expiry");
                break;
            }
            self.until_it_holds(step.victim)?;
            std::thread::sleep(self.ttl + step.lasts);
            self.workers.thaw(step.victim)?;
        }
        Ok(())
    }

    /// Stops the process while it holds a lock; returns whether it does.
    ///
    /// It must have held the lock before as well, because a stopped process does not know of a new hand-off.
    fn until_it_holds(&self, worker: usize) -> Result<bool, Failure> {
        for _ in 0..POLLS {
            let before = self.held_by(worker);
            if !before.is_empty() {
                self.workers.freeze(worker)?;
                if self.held_by(worker).iter().any(|value| before.contains(value)) {
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
    fn held_by(&self, worker: usize) -> Vec<String> {
        let mark = format!(":{} ", self.workers.pid(worker));
        let half = i64::try_from(self.ttl.as_millis() / 2).unwrap_or(i64::MAX);
        let held = self.keys.iter().filter_map(|key| {
            let mut its = self.nodes.look(key);
            its.retain(|(value, left)| value.contains(&mark) && *left > half);
            (its.len() >= self.nodes.quorum()).then(|| its.swap_remove(0).0)
        });
        held.collect()
    }
}
