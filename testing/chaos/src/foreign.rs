//! Another program that uses the same locks with `SET key value NX PX`, and deletes after a comparison.

use crate::history::{HistoryLine, Op, Outcome};
use crate::nodes::DirectAccess;
use crate::recorder::{Recorder, assumed_lease, micros, now};
use crate::rng_ext::RngExt as _;
use fastrand::Rng;
use fencelock_testkit::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const NAME: &str = "foreign";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Acquires a lock from time to time until it is dropped.
#[derive(Debug)]
pub(crate) struct ForeignClient {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Work {
    nodes: Vec<DirectAccess>,
    keys: Vec<String>,
    ttl: Duration,
    recorder: Arc<Recorder>,
    rng: Rng,
}

impl ForeignClient {
    pub(crate) fn start(
        nodes: Vec<DirectAccess>,
        keys: Vec<String>,
        ttl: Duration,
        recorder: Arc<Recorder>,
        rng: Rng,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut work = Work { nodes, keys, ttl, recorder, rng };
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                work.turn();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for ForeignClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // This fails only if the thread has panicked, which prints a message.
            let _ = thread.join();
        }
    }
}

impl Work {
    /// Polls one key for a while, as such programs do.
    fn turn(&mut self) {
        let key = self.keys[self.rng.usize(..self.keys.len())].clone();
        for _ in 0..40 {
            let value = format!("foreign-{:016x}", self.rng.u64(..));
            let (invoke_us, took) = (now(), self.take(&key, &value));
            let mut line = HistoryLine::new(NAME, &key, Op::Acquire, invoke_us, now()).hold(&value, None);
            line.valid_until_us = Some(invoke_us + micros(assumed_lease(self.ttl)));
            line.ttl_us = Some(micros(self.ttl));
            if took {
                self.recorder.note(&line);
                self.recorder.seen("a foreign hold");
                std::thread::sleep(self.rng.millis(5, 60));
                self.release(&key, &value);
                break;
            }
            std::thread::sleep(self.rng.millis(2, 12));
        }
        std::thread::sleep(self.rng.millis(20, 120));
    }

    /// Acquires the key on a majority of the nodes, or on none.
    fn take(&self, key: &str, value: &str) -> bool {
        let millis = self.ttl.as_millis().to_string();
        let set = |node: &DirectAccess| node.command(&["SET", key, value, "NX", "PX", &millis]);
        let answers: Vec<Reply> = self.nodes.iter().map(set).collect();
        let took = answers.iter().filter(|answer| answer.text() == Some("OK")).count();
        if took > self.nodes.len() / 2 {
            return true;
        }
        // If all nodes refused, there is nothing to delete.
        if answers.iter().any(|answer| *answer != Reply::Nil) {
            self.clear(key, value);
        }
        false
    }

    fn release(&self, key: &str, value: &str) {
        let invoke_us = now();
        let whole = self.clear(key, value);
        let line = HistoryLine::new(NAME, key, Op::Release, invoke_us, now()).hold(value, None);
        self.recorder.note(&if whole { line } else { line.result(Outcome::Info) });
    }

    fn clear(&self, key: &str, value: &str) -> bool {
        let answers = self.nodes.iter().map(|node| node.command(&["EVAL", RELEASE, "1", key, value]));
        answers.filter(|answer| matches!(answer, Reply::Int(_))).count() == self.nodes.len()
    }
}
