//! Runs all workers, from the first start to the last log.

use crate::error::NotMeasured;
use crate::protocol::{GO, LoadJob, Log, WorkerMessage};
use crate::workers::WorkerPool;
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use std::io::{self, BufRead, BufReader};
use std::process::{ChildStdout, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A moment at which the counters of the servers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The warm-up is over.
    Begin,
    /// The span is over, or all workers have ended before.
    End,
}

/// The timeout of the start. A worker may have to start an interpreter and connect on a busy machine.
const STARTING: Duration = Duration::from_secs(60);
/// The time limit for workers to stop and write their log after the span.
const ENDING: Duration = Duration::from_secs(60);

/// Runs all jobs in parallel. All workers have exited when this returns.
pub(crate) fn run(
    pool: &WorkerPool,
    jobs: &[LoadJob],
    spawn: &dyn Fn() -> io::Result<Command>,
    at: &mut dyn FnMut(Mark) -> Result<(), NotMeasured>,
) -> Result<Vec<Log>, NotMeasured> {
    let done = together(pool, jobs, spawn, at);
    if pool.is_stopped() { Err(NotMeasured::Stopped) } else { done }
}

fn together(
    pool: &WorkerPool,
    jobs: &[LoadJob],
    spawn: &dyn Fn() -> io::Result<Command>,
    at: &mut dyn FnMut(Mark) -> Result<(), NotMeasured>,
) -> Result<Vec<Log>, NotMeasured> {
    let (sender, lines) = channel();
    let mut workers = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let mut worker =
            spawn().and_then(|command| pool.spawn(command)).map_err(NotMeasured::system("start a worker"))?;
        let (sender, stdout) = (sender.clone(), worker.take_stdout());
        // The thread ends with the stream of the worker.
        std::thread::spawn(move || stdout.map(|stdout| listen(number, stdout, &sender)));
        worker.send(&job.line()).map_err(NotMeasured::system("start a worker"))?;
        workers.push(worker);
    }
    drop(sender);
    let mut session = Session::new(jobs, lines);
    session.await_ready()?;
    for worker in &mut workers {
        worker.send(GO).map_err(NotMeasured::system("start the work of a worker"))?;
    }
    session.work(at)
}

/// A line of a worker; `None` at the end.
type Line = (usize, Option<String>);

fn listen(worker: usize, stdout: BufReader<ChildStdout>, sender: &Sender<Line>) {
    for line in stdout.lines().map_while(Result::ok) {
        if sender.send((worker, Some(line))).is_err() {
            return;
        }
    }
    let _ = sender.send((worker, None));
}

/// The state of all workers.
struct Session {
    lines: Receiver<Line>,
    ready: usize,
    logs: Vec<Option<Log>>,
    warm_up: Duration,
    span: Duration,
}

impl Session {
    fn new(jobs: &[LoadJob], lines: Receiver<Line>) -> Self {
        let of_first = |span: fn(&LoadJob) -> Duration| jobs.first().map(span).unwrap_or_default();
        let (warm_up, span) = (of_first(LoadJob::warm_up), of_first(LoadJob::span));
        Self { lines, ready: 0, logs: vec![None; jobs.len()], warm_up, span }
    }

    /// Waits until all workers are connected.
    fn await_ready(&mut self) -> Result<(), NotMeasured> {
        let deadline = BootClock.now() + STARTING;
        while self.ready < self.logs.len() {
            self.receive(deadline)?;
            if BootClock.now() >= deadline {
                return Err(NotMeasured::Worker(format!("did not become ready within {} s", STARTING.as_secs())));
            }
        }
        Ok(())
    }

    fn work(mut self, at: &mut dyn FnMut(Mark) -> Result<(), NotMeasured>) -> Result<Vec<Log>, NotMeasured> {
        let begun = BootClock.now();
        let (warm, end) = (begun + self.warm_up, begun + self.warm_up + self.span);
        let mut marks = vec![(end, Mark::End), (warm, Mark::Begin)];
        while self.logs.iter().any(Option::is_none) {
            while let Some((_, mark)) = marks.pop_if(|(moment, _)| BootClock.now() >= *moment) {
                at(mark)?;
            }
            if BootClock.now() >= end + ENDING {
                return Err(NotMeasured::Worker("did not finish in time".to_owned()));
            }
            self.receive(marks.last().map_or(end + ENDING, |(moment, _)| *moment))?;
        }
        while let Some((_, mark)) = marks.pop() {
            at(mark)?;
        }
        Ok(self.logs.into_iter().flatten().collect())
    }

    /// Receives one line before the deadline.
    fn receive(&mut self, deadline: Moment) -> Result<(), NotMeasured> {
        let (worker, line) = match self.lines.recv_timeout(deadline.since(BootClock.now())) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(NotMeasured::Worker("exited early".to_owned())),
        };
        match line.as_deref().map(WorkerMessage::parse) {
            None if self.logs[worker].is_some() => {}
            None => return Err(NotMeasured::Worker("exited early".to_owned())),
            Some(Err(error)) => return Err(NotMeasured::Worker(format!("sent an invalid message: {error}"))),
            Some(Ok(WorkerMessage::Ready)) => self.ready += 1,
            Some(Ok(WorkerMessage::Log(log))) => self.logs[worker] = Some(*log),
        }
        Ok(())
    }
}
