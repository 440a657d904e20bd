//! A client that acquires keys continuously, so that the history shows how long there was no grant.

use crate::history::{HistoryLine, Op, Outcome};
use crate::recorder::{Recorder, micros, now};
use fencelock::blocking::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(10);
/// Longer than every fault.
const WAIT: Duration = Duration::from_secs(30);
pub(crate) const NAME: &str = "pulse";

/// A key in the slot of another one, which no other client uses.
pub(crate) fn key_beside(key: &str) -> String {
    format!("{{{key}}}:{NAME}")
}

/// Acquires and releases a key in the slot of each key of the workload until it is dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pulse {
    pub(crate) fn start(client: &Client, keys: &[String], ttl: Duration, recorder: &Arc<Recorder>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = keys.iter().map(|key| {
            let beat = Beat { client: client.clone(), key: key_beside(key), ttl, recorder: Arc::clone(recorder) };
            let stopped = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stopped.load(Ordering::SeqCst) {
                    beat.once();
                    std::thread::sleep(PAUSE);
                }
            })
        });
        Self { threads: threads.collect(), stop }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // This fails only if the thread has panicked, which prints a message.
            let _ = thread.join();
        }
    }
}

struct Beat {
    client: Client,
    key: String,
    ttl: Duration,
    recorder: Arc<Recorder>,
}

impl Beat {
    fn once(&self) {
        let invoke_us = now();
        let Ok(guard) = self.client.lock(&self.key).ttl(self.ttl).wait(WAIT).acquire() else { return };
        let at = now();
        let (holder, fence) = (guard.holder().to_string(), Some(guard.fencing_token().get()));
        let mut line = HistoryLine::new(NAME, &self.key, Op::Acquire, invoke_us, at).hold(&holder, fence);
        line.valid_until_us = Some(at.saturating_add(micros(guard.remaining())));
        line.ttl_us = Some(micros(self.ttl));
        self.recorder.note(&line);
        let invoke_us = now();
        let released = guard.release();
        let line = HistoryLine::new(NAME, &self.key, Op::Release, invoke_us, now()).hold(&holder, fence);
        // Without an answer, the lease expires.
        self.recorder.note(&line.result(if released.is_ok() { Outcome::Ok } else { Outcome::Info }));
    }
}
