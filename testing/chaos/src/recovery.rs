//! After the end of a fault, each key must be granted soon.

use crate::history::{HistoryLine, Op};
use crate::recorder::{Recorder, micros, now};
use crate::topology::Topology;
use crate::workload;
use fencelock::Mode;
use fencelock::blocking::Client;
use std::time::Duration;

/// Time for the queue, a busy machine and the leases of clients that have just died.
pub(crate) const SLACK: Duration = Duration::from_secs(8);

/// When each key must have been granted, if all quarantines have ended at `whole_at_us`.
pub(crate) fn bound(ttl: Duration, healed_us: u64, whole_at_us: u64) -> Duration {
    3 * ttl + SLACK + Duration::from_micros(whole_at_us.saturating_sub(healed_us))
}

/// A client that waits in the queue of every key, like the others.
#[derive(Clone, Copy)]
pub(crate) struct Recovery<'a> {
    pub(crate) client: &'a Client,
    pub(crate) recorder: &'a Recorder,
    pub(crate) keys: &'a [String],
    pub(crate) ttl: Duration,
    pub(crate) topology: Topology,
}

impl Recovery<'_> {
    /// Each key must be granted within the bound.
    pub(crate) fn demand(&self, after: &str, healed_us: u64, bound: Duration) {
        for key in self.keys {
            let mut line = HistoryLine::new("run", key, Op::Heal, healed_us, healed_us).what(after);
            line.bound_us = Some(micros(bound));
            self.recorder.note(&line);
        }
    }

    /// Acquires and releases every key.
    pub(crate) fn probe(&self, bound: Duration) {
        std::thread::scope(|scope| {
            for key in self.keys {
                scope.spawn(|| self.probe_key(key, bound));
            }
        });
    }

    fn probe_key(&self, key: &str, bound: Duration) {
        let invoke_us = now();
        let lock = self.client.lock(key).ttl(self.ttl).wait(bound);
        let mode = workload::soon(key, self.topology);
        let lock = if mode == Mode::Shared { lock.shared() } else { lock };
        let Ok(guard) = lock.acquire() else { return };
        let at = now();
        let until = at.saturating_add(micros(guard.remaining()));
        let (holder, fence) = (guard.holder().to_string(), Some(guard.fencing_token().get()));
        let mut line = HistoryLine::new("run", key, Op::Acquire, invoke_us, at).hold(&holder, fence).mode(mode);
        line.valid_until_us = Some(until);
        line.ttl_us = Some(micros(self.ttl));
        self.recorder.note(&line);
        let invoke_us = now();
        // If the reply is lost, the lock is held until its lease expires, but it counts as held only up to here.
        let _ = guard.release();
        self.recorder.note(&HistoryLine::new("run", key, Op::Release, invoke_us, now()).hold(&holder, fence));
    }
}
