//! The processes that work.

use crate::error::NotMeasured;
use crate::protocol::{GO, Job, Log, Word};
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// All workers that live now. Nobody outlives the run, whatever happens: a worker ends when its stdin does, and
/// [`Crew::stop`] kills them from another thread.
#[derive(Debug, Default)]
pub struct Crew(Mutex<Members>);

#[derive(Debug, Default)]
struct Members {
    is_stopped: bool,
    children: Vec<Child>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the word to begin.
    pub elapsed: Duration,
    /// The warm-up and the span together.
    pub whole: Duration,
    /// What all workers together had when they last told, those of the warm-up too,
    pub grants: u64,
    /// and when that was; zero if not all have told yet, as those that never do.
    pub told: Duration,
}

/// A moment of a run at which the servers are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The warm-up is over.
    Begin,
    /// The span is over, or all workers have ended before.
    End,
}

/// Workers of any language may have to start an interpreter and connect, on a machine that does other things too.
const STARTING: Duration = Duration::from_secs(60);
/// After the span they give up and write their log. Who takes longer hangs.
const ENDING: Duration = Duration::from_secs(60);
/// How often progress is told.
const TELLING: Duration = Duration::from_millis(100);

impl Crew {
    /// Kills everybody, now and from now on.
    pub fn stop(&self) {
        let mut members = self.members();
        members.is_stopped = true;
        for child in &mut members.children {
            // It can only fail if it has ended already.
            let _ = child.kill();
        }
    }

    /// Lets a worker do each job, all at the same time. Nobody is left in the end.
    pub(crate) fn run(
        &self,
        jobs: &[Job],
        hire: &dyn Fn() -> io::Result<Command>,
        watch: &dyn Fn(Progress),
        at: &mut dyn FnMut(Mark) -> Result<(), NotMeasured>,
    ) -> Result<Vec<Log>, NotMeasured> {
        let done = self.together(jobs, hire, watch, at);
        let (children, is_stopped) = {
            let mut members = self.members();
            (std::mem::take(&mut members.children), members.is_stopped)
        };
        for mut child in children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if is_stopped { Err(NotMeasured::Stopped) } else { done }
    }

    fn together(
        &self,
        jobs: &[Job],
        hire: &dyn Fn() -> io::Result<Command>,
        watch: &dyn Fn(Progress),
        at: &mut dyn FnMut(Mark) -> Result<(), NotMeasured>,
    ) -> Result<Vec<Log>, NotMeasured> {
        let (said, ear) = channel();
        let mut mouths = Vec::new();
        for (worker, job) in jobs.iter().enumerate() {
            let (mouth, out) = self.hire(job, hire()).map_err(NotMeasured::system("start a worker"))?;
            let said = said.clone();
            // It ends with the stream, and so with the worker.
            std::thread::spawn(move || listen(worker, out, &said));
            mouths.push(mouth);
        }
        drop(said);
        let mut shift = Shift::new(jobs, ear);
        shift.assemble()?;
        for mouth in &mut mouths {
            writeln!(mouth, "{GO}").map_err(NotMeasured::system("tell a worker to begin"))?;
        }
        shift.work(watch, at)
    }

    fn hire(&self, job: &Job, command: io::Result<Command>) -> io::Result<(ChildStdin, ChildStdout)> {
        let mut command = command?;
        let mut members = self.members();
        if members.is_stopped {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // A group of its own, so that nothing typed at a terminal ends it before its keys can be removed.
        let mut child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let streams = child.stdin.take().zip(child.stdout.take());
        members.children.push(child);
        let (mut mouth, ear) = streams.ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(mouth, "{}", job.line())?;
        Ok((mouth, ear))
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of a worker; `None` when there are no more.
type Line = (usize, Option<String>);

fn listen(worker: usize, out: ChildStdout, said: &Sender<Line>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if said.send((worker, Some(line))).is_err() {
            return;
        }
    }
    let _ = said.send((worker, None));
}

/// What is known of all workers.
struct Shift {
    ear: Receiver<Line>,
    ready: usize,
    /// What each has told since all of them had.
    ticks: Vec<Option<u64>>,
    logs: Vec<Option<Log>>,
    warm_up: Duration,
    span: Duration,
}

impl Shift {
    fn new(jobs: &[Job], ear: Receiver<Line>) -> Self {
        let of_first = |span: fn(&Job) -> Duration| jobs.first().map(span).unwrap_or_default();
        let (warm_up, span) = (of_first(Job::warm_up), of_first(Job::span));
        Self { ear, ready: 0, ticks: vec![None; jobs.len()], logs: vec![None; jobs.len()], warm_up, span }
    }

    /// Waits until everybody is connected.
    fn assemble(&mut self) -> Result<(), NotMeasured> {
        let deadline = BootClock.now() + STARTING;
        while self.ready < self.logs.len() {
            self.hear(deadline)?;
            if BootClock.now() >= deadline {
                return Err(NotMeasured::Worker(format!("was not ready within {} s", STARTING.as_secs())));
            }
        }
        Ok(())
    }

    fn work(
        mut self,
        watch: &dyn Fn(Progress),
        at: &mut dyn FnMut(Mark) -> Result<(), NotMeasured>,
    ) -> Result<Vec<Log>, NotMeasured> {
        let begun = BootClock.now();
        let (warm, end) = (begun + self.warm_up, begun + self.warm_up + self.span);
        let mut progress = Progress { whole: self.warm_up + self.span, ..Progress::default() };
        let mut marks = vec![(end, Mark::End), (warm, Mark::Begin)];
        while self.logs.iter().any(Option::is_none) {
            while let Some((_, mark)) = marks.pop_if(|(moment, _)| BootClock.now() >= *moment) {
                at(mark)?;
            }
            let now = BootClock.now();
            if now >= end + ENDING {
                return Err(NotMeasured::Worker("did not come to its end".to_owned()));
            }
            progress.elapsed = now.since(begun);
            if let Some(ticks) = self.ticks.iter().copied().collect::<Option<Vec<u64>>>() {
                (progress.grants, progress.told) = (ticks.iter().sum(), progress.elapsed);
                self.ticks.fill(None);
            }
            watch(progress);
            let next = marks.last().map_or(now + TELLING, |(moment, _)| (*moment).min(now + TELLING));
            self.hear(next)?;
        }
        while let Some((_, mark)) = marks.pop() {
            at(mark)?;
        }
        Ok(self.logs.into_iter().flatten().collect())
    }

    /// Takes one line, if it comes in time.
    fn hear(&mut self, deadline: Moment) -> Result<(), NotMeasured> {
        let (worker, line) = match self.ear.recv_timeout(deadline.since(BootClock.now())) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(NotMeasured::Worker("ended before its work".to_owned())),
        };
        match line.as_deref().map(Word::parse) {
            None if self.logs[worker].is_some() => {}
            None => return Err(NotMeasured::Worker("ended before its work".to_owned())),
            Some(Err(told)) => return Err(NotMeasured::Worker(format!("said what is {told}"))),
            Some(Ok(Word::Ready)) => self.ready += 1,
            Some(Ok(Word::Tick(grants))) => self.ticks[worker] = Some(grants),
            Some(Ok(Word::Log(log))) => self.logs[worker] = Some(*log),
        }
        Ok(())
    }
}
