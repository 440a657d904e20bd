//! The worker processes.

use crate::Failure;
use crate::recorder;
use crate::worker::{VARIABLE, WorkerJob};
use fencelock_load::workers::{Worker, WorkerPool, start};
use fencelock_testkit::{freeze, thaw};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// All workers.
#[derive(Debug)]
pub(crate) struct Workers {
    program: PathBuf,
    dir: PathBuf,
    template: WorkerJob,
    running: Vec<Worker>,
    pool: WorkerPool,
    spawned: u64,
}

impl Workers {
    /// `template` is the job of each, except for its name, its seed and its history, which is a file in `dir`.
    pub(crate) fn spawn(program: &Path, dir: &Path, template: WorkerJob, count: usize) -> Result<Self, Failure> {
        let mut workers = Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            template,
            running: Vec::new(),
            pool: WorkerPool::default(),
            spawned: 0,
        };
        for index in 0..count {
            let worker = workers.start(index)?;
            workers.running.push(worker);
        }
        Ok(workers)
    }

    /// Every second worker shares leases among its tasks, and every third has few writers.
    fn start(&mut self, index: usize) -> Result<Worker, Failure> {
        let number = self.spawned;
        self.spawned += 1;
        let mut job = self.template.clone();
        job.name = format!("w{number}");
        job.shares = index.is_multiple_of(2);
        if index % 3 == 2 {
            job.writers_percent = 1;
        }
        job.seed = job.seed.wrapping_add(number);
        job.history = self.dir.join(format!("{}.jsonl", job.name));
        let mut command = Command::new(&self.program);
        command.env(VARIABLE, "1");
        let mut worker = self.pool.spawn(command)?;
        worker.send(&serde_json::to_string(&job)?)?;
        start(std::slice::from_mut(&mut worker))?;
        Ok(worker)
    }

    /// The process id, as it appears in the values of its locks.
    pub(crate) fn pid(&self, worker: usize) -> u32 {
        self.running[worker].pid()
    }

    pub(crate) fn freeze(&self, worker: usize) -> Result<(), Failure> {
        Ok(freeze(self.pid(worker))?)
    }

    pub(crate) fn thaw(&self, worker: usize) -> Result<(), Failure> {
        Ok(thaw(self.pid(worker))?)
    }

    /// Whether any worker, or another process with a history in the same directory, has observed the event.
    pub(crate) fn has_seen(&self, what: &str) -> Result<bool, Failure> {
        recorder::has_seen(&self.dir, what)
    }

    /// Kills a worker, and starts a new one.
    pub(crate) fn replace(&mut self, worker: usize) -> Result<(), Failure> {
        let fresh = self.start(worker)?;
        // Dropping the old worker kills it.
        drop(std::mem::replace(&mut self.running[worker], fresh));
        Ok(())
    }

    /// Waits until all workers have finished.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<(), Failure> {
        self.running.iter_mut().for_each(Worker::close_stdin);
        Ok(self.running.into_iter().try_for_each(|worker| worker.finish(limit))?)
    }
}
