//! A master of a cluster that is disconnected from the other nodes, but not from clients. It continues until it detects
//! this.

use crate::Failure;
use crate::history::{HistoryLine, Op};
use crate::recorder::{Recorder, micros, now};
use fencelock_testkit::{RedisServer, Reply, RespClient};
use std::thread::sleep;
use std::time::Duration;

/// The span of this event is the time for which the master continued.
const STOPPED: &str = "a master that was cut off and stopped";
/// Generous for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// The disconnected master, which receives a write of a key of its own.
pub(crate) struct CutOff {
    node: RespClient,
    key: String,
    began_us: u64,
}

impl CutOff {
    /// Starts when the master is disconnected. The key has the slot of another one.
    pub(crate) fn of(node: &RedisServer, beside: &str) -> Result<Self, Failure> {
        Ok(Self { node: node.connect()?, key: format!("{{{beside}}}:alone"), began_us: now() })
    }

    /// Waits until the master refuses to write, and returns the time.
    pub(crate) fn await_stop(&mut self, victim: &str, recorder: &Recorder) -> Result<u64, Failure> {
        while now() < self.began_us + micros(TIMEOUT) {
            if self.refuses()? {
                let stopped_us = now();
                recorder.note(&HistoryLine::new(victim, "", Op::Seen, self.began_us, stopped_us).what(STOPPED));
                return Ok(stopped_us);
            }
            sleep(PAUSE);
        }
        Err(format!("a master that is cut off writes for {TIMEOUT:?}").into())
    }

    /// Checks that it does not write again before it is reconnected.
    pub(crate) fn stay_stopped(&mut self, span: Duration) -> Result<(), Failure> {
        let until = now() + micros(span);
        while now() < until {
            if !self.refuses()? {
                return Err("a master that is cut off had stopped, and writes again".into());
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    fn refuses(&mut self) -> Result<bool, Failure> {
        match self.node.command(&["SET", &self.key, "1", "PX", "20"]) {
            Reply::Simple(_) => Ok(false),
            Reply::Error(why) if why.starts_with("CLUSTERDOWN") => Ok(true),
            other => Err(format!("a master that is cut off answers {other:?}").into()),
        }
    }
}
