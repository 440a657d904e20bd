//! The time from a failover to the next grant of the new master.

use crate::history::{History, HistoryLine, Op};
use crate::recorder::{Recorder, micros, now};
use crate::recovery::SLACK;
use fencelock::blocking::{Client, Guard};
use fencelock_testkit::RespClient;
use std::sync::Arc;
use std::time::Duration;

/// Only the run uses this key, so no other client delays a grant.
pub(crate) const KEY: &str = "resumed";
/// How long grants may take after a failover, in addition to the quarantine.
pub(crate) const PROMISE: Duration = Duration::from_secs(2);
/// The old master may grant the key first.
const PAUSE: Duration = Duration::from_millis(5);

/// A client that acquires a lock as soon as a new master grants it.
pub(crate) struct Resumption {
    pub(crate) client: Client,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) ttl: Duration,
    /// Zero without a quarantine.
    pub(crate) quarantine: Duration,
    /// The new master.
    pub(crate) port: u16,
    /// When most sentinels named it.
    pub(crate) named_us: u64,
}

impl Resumption {
    /// The grant must come in time.
    pub(crate) fn demand(&self) {
        let mut line = HistoryLine::new("run", KEY, Op::Heal, self.named_us, self.named_us);
        line.bound_us = Some(micros(PROMISE + self.quarantine));
        self.recorder.note(&line);
    }

    /// Records the first grant of the new master. Grants of the old one do not count.
    pub(crate) fn measure(&self) {
        let limit = PROMISE + self.quarantine + SLACK;
        while now() < self.named_us + micros(limit) {
            let invoke_us = now();
            if let Ok(guard) = self.client.lock(KEY).ttl(self.ttl).wait(limit).acquire() {
                let at = now();
                if self.is_of_new_master(&guard) {
                    return self.note(guard, invoke_us, at);
                }
                // The old master may end at any time.
                let _ = guard.release();
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn is_of_new_master(&self, guard: &Guard) -> bool {
        let Ok(mut master) = RespClient::connect(self.port) else { return false };
        master.command(&["GET", KEY]).text().is_some_and(|value| value.starts_with(&guard.holder().to_string()))
    }

    fn note(&self, guard: Guard, invoke_us: u64, at: u64) {
        let (holder, fence) = (guard.holder().to_string(), Some(guard.fencing_token().get()));
        let mut line = HistoryLine::new("run", KEY, Op::Acquire, invoke_us, at).hold(&holder, fence);
        line.valid_until_us = Some(at.saturating_add(micros(guard.remaining())));
        line.ttl_us = Some(micros(self.ttl));
        self.recorder.note(&line);
        let invoke_us = now();
        // If the reply is lost, the lease expires.
        let _ = guard.release();
        self.recorder.note(&HistoryLine::new("run", KEY, Op::Release, invoke_us, now()).hold(&holder, fence));
    }
}

/// The times from the moment when most sentinels named a new master to its first grant, in ascending order.
pub fn resumptions(history: &History) -> Vec<Duration> {
    let mine: Vec<&HistoryLine> = history.lines.iter().filter(|line| line.key == KEY).collect();
    let next = |from: u64| {
        let grants = mine.iter().filter(|line| line.is(Op::Acquire)).map(|line| line.return_us);
        grants.filter(|at| *at >= from).min()
    };
    let heals = mine.iter().filter(|line| line.op == Op::Heal).map(|line| line.return_us);
    let mut times: Vec<_> = heals.filter_map(|from| Some(Duration::from_micros(next(from)? - from))).collect();
    times.sort_unstable();
    times
}
