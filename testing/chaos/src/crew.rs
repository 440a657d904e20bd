//! The processes that take locks.

use crate::Failure;
use crate::recorder;
use crate::worker::{Job, VARIABLE};
use fencelock_testkit::{freeze, thaw};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// One process. It ends with this value.
#[derive(Debug)]
struct Hand {
    child: Child,
    /// The worker goes on until this is closed.
    leash: Option<ChildStdin>,
}

impl Hand {}

impl Drop for Hand {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Crew {
    program: PathBuf,
    dir: PathBuf,
    template: Job,
    hands: Vec<Hand>,
    hired: u64,
}

impl Crew {
    /// `template` is the job of each, but for its name, its seed and its history, which is a file in `dir`.
    pub(crate) fn hire(program: &Path, dir: &Path, template: Job, count: usize) -> Result<Self, Failure> {
        let mut crew = Self { program: program.to_owned(), dir: dir.to_owned(), template, hands: Vec::new(), hired: 0 };
        for place in 0..count {
            let hand = crew.start(place)?;
            crew.hands.push(hand);
        }
        Ok(crew)
    }

    /// In every other place tasks share leases.
    fn start(&mut self, place: usize) -> Result<Hand, Failure> {
        let number = self.hired;
        self.hired += 1;
        let mut job = self.template.clone();
        job.name = format!("w{number}");
        job.shares = place.is_multiple_of(2);
        job.seed = job.seed.wrapping_add(number);
        job.history = self.dir.join(format!("{}.jsonl", job.name));
        let mut command = Command::new(&self.program);
        command.env(VARIABLE, serde_json::to_string(&job)?).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let leash = child.stdin.take();
        Ok(Hand { child, leash })
    }

    /// The process number of one, as it stands in the values of its locks.
    pub(crate) fn pid(&self, worker: usize) -> u32 {
        self.hands[worker].child.id()
    }

    pub(crate) fn freeze(&self, worker: usize) -> Result<(), Failure> {
        Ok(freeze(self.pid(worker))?)
    }

    pub(crate) fn thaw(&self, worker: usize) -> Result<(), Failure> {
        Ok(thaw(self.pid(worker))?)
    }

    /// Whether any of them, or anybody else who writes a history beside theirs, has seen this.
    pub(crate) fn has_seen(&self, what: &str) -> Result<bool, Failure> {
        recorder::has_seen(&self.dir, what)
    }

    /// Kills one and hires another in its place.
    pub(crate) fn replace(&mut self, worker: usize) -> Result<(), Failure> {
        let fresh = self.start(worker)?;
        // The old one is killed when it is dropped.
        drop(std::mem::replace(&mut self.hands[worker], fresh));
        Ok(())
    }

    /// Lets all come to their end.
    pub(crate) fn dismiss(mut self, patience: Duration) -> Result<(), Failure> {
        for hand in &mut self.hands {
            hand.leash = None;
        }
        let mut left = patience;
        for hand in &mut self.hands {
            let status = loop {
                if let Some(status) = hand.child.try_wait()? {
                    break status;
                }
                let nap = Duration::from_millis(10);
                left = left.checked_sub(nap).ok_or("a worker does not come to its end")?;
                std::thread::sleep(nap);
            };
            if !status.success() {
                return Err(format!("a worker failed: {status}").into());
            }
        }
        Ok(())
    }
}
