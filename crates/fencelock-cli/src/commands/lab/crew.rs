//! The processes of a story, which are this very program.

use fencelock_lab::{Job, NotRun, Tally};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencelock::Clock;
use fencelock::backends::BootClock;

/// What a process says when it is connected, and what it is told when all are.
pub(super) const READY: &str = "ready";
pub(super) const GO: &str = "go";

/// All processes that live now. None of them outlives this program: each ends when its stdin does.
#[derive(Default)]
pub(super) struct Crew(Mutex<Members>);

#[derive(Default)]
struct Members {
    is_stopped: bool,
    children: Vec<Child>,
}

/// The streams of one of them.
struct Line {
    mouth: ChildStdin,
    ear: BufReader<ChildStdout>,
}

impl Crew {
    /// Kills everybody, now and from now on.
    pub(super) fn stop(&self) {
        let mut members = self.members();
        members.is_stopped = true;
        for child in &mut members.children {
            // It can only fail if it has ended already.
            let _ = child.kill();
        }
    }

    /// Lets a process do each job, all at the same time, and tells how long they took. With `may_die`, the first one may
    /// be killed meanwhile. Nobody is left in the end, whatever happened.
    pub(super) fn run(&self, jobs: &[Job], may_die: bool) -> Result<(Vec<Tally>, Duration), NotRun> {
        let done = self.together(jobs, may_die);
        for mut child in std::mem::take(&mut self.members().children) {
            let _ = child.kill();
            let _ = child.wait();
        }
        done
    }

    fn together(&self, jobs: &[Job], may_die: bool) -> Result<(Vec<Tally>, Duration), NotRun> {
        let mut lines = jobs.iter().map(|job| self.hire(job)).collect::<Result<Vec<_>, _>>().map_err(NotRun::Start)?;
        for line in &mut lines {
            if line.listen().as_deref() != Some(READY) {
                return Err(NotRun::Start(io::Error::other("it has ended")));
            }
        }
        for line in &mut lines {
            writeln!(line.mouth, "{GO}").map_err(NotRun::Start)?;
        }
        let begun = BootClock.now();
        let mut tallies = Vec::new();
        for (number, line) in lines.iter_mut().enumerate() {
            match line.listen() {
                Some(told) => tallies.push(Tally::parse(&told)?),
                None if may_die && number == 0 => {}
                None => return Err(NotRun::Job("a process ended before its work".to_owned())),
            }
        }
        Ok((tallies, BootClock.now().since(begun)))
    }

    fn hire(&self, job: &Job) -> io::Result<Line> {
        let mut members = self.members();
        if members.is_stopped {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut command = Command::new(std::env::current_exe()?);
        // A group of its own, so that nothing typed at a terminal ends it before its keys can be removed.
        command.args(["lab", "hand"]).process_group(0).env_remove("FENCELOCK_URL");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let streams = child.stdin.take().zip(child.stdout.take());
        members.children.push(child);
        let (mouth, ear) = streams.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = Line { mouth, ear: BufReader::new(ear) };
        writeln!(line.mouth, "{}", job.line())?;
        Ok(line)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The next line; `None` at its end.
    fn listen(&mut self) -> Option<String> {
        let mut told = String::new();
        let length = self.ear.read_line(&mut told).unwrap_or(0);
        (length > 0).then(|| told.trim_end().to_owned())
    }
}
