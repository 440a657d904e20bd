//! The processes of a story, which are this very program.

use super::pauses::Pauses;
use super::protocol::{BEFORE_WRITE, GO, READY};
use fencelock::Clock;
use fencelock::backends::BootClock;
use fencelock_lab::{Job, NotRun, Tally};
use rustix::process::Pid;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// All processes that live now. None of them outlives this program: each ends when its stdin does, or when its parent does.
#[derive(Default)]
pub(super) struct Crew {
    children: Mutex<Vec<Child>>,
    is_stopped: AtomicBool,
}

/// One of them: its number, its streams, and its id, which is its own until the end of [`Crew::run`].
struct Member {
    number: u32,
    pid: Pid,
    mouth: ChildStdin,
    ear: BufReader<ChildStdout>,
}

/// What everybody has told, and how long that took.
pub(super) type Told = (Vec<Tally>, Duration);

impl Crew {
    /// Kills everybody, now and from now on.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.kill();
    }

    /// Lets a process do each job, all at the same time. With `may_die`, one of them may be killed meanwhile; with
    /// `pauses`, each stands still for a while. Nobody is left in the end, whatever happened.
    pub(super) fn run(&self, jobs: &[Job], may_die: bool, pauses: Option<&Pauses>) -> Result<Told, NotRun> {
        let done = self.together(jobs, may_die, pauses);
        self.kill();
        for mut child in std::mem::take(&mut *self.children()) {
            let _ = child.wait();
        }
        done
    }

    fn together(&self, jobs: &[Job], may_die: bool, pauses: Option<&Pauses>) -> Result<Told, NotRun> {
        let hired = (0..).zip(jobs).map(|(number, job)| self.hire(number, job));
        let mut members = hired.collect::<Result<Vec<_>, _>>().map_err(NotRun::Start)?;
        for member in &mut members {
            if member.listen().as_deref() != Some(READY) {
                return Err(NotRun::Start(io::Error::other("it has ended")));
            }
        }
        for member in &mut members {
            member.say(GO)?;
        }
        let (begun, failed) = (BootClock.now(), AtomicBool::new(false));
        let may_die = &AtomicBool::new(may_die);
        let is_over = &|| failed.load(Ordering::Relaxed) || self.is_stopped.load(Ordering::Relaxed);
        let tallies = std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for member in members {
                let tell = tell.clone();
                scope.spawn(move || _ = tell.send(hear_out(member, may_die, pauses, is_over)));
            }
            drop(tell);
            let tallies: Result<Vec<_>, _> = told.into_iter().filter_map(Result::transpose).collect();
            if tallies.is_err() {
                // Or those who are still at work would be listened to until they are done.
                failed.store(true, Ordering::Relaxed);
                self.kill();
            }
            tallies
        });
        Ok((tallies?, BootClock.now().since(begun)))
    }

    fn hire(&self, number: u32, job: &Job) -> io::Result<Member> {
        let mut children = self.children();
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut command = Command::new(std::env::current_exe()?);
        // Quiet: what its client warns of is what the table counts. A group of its own, so that nothing typed at a terminal ends it before its keys can be removed.
        command
            .args(["-q", "lab", "hand"])
            .process_group(0)
            .env_remove("FENCELOCK_URL")
            .env_remove("FENCELOCK_PASSWORD");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let streams = child.stdin.take().zip(child.stdout.take());
        let pid = Pid::from_child(&child);
        children.push(child);
        let (mouth, ear) = streams.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut member = Member { number, pid, mouth, ear: BufReader::new(ear) };
        writeln!(member.mouth, "{}", job.line())?;
        Ok(member)
    }

    fn kill(&self) {
        for child in &mut *self.children() {
            // It can only fail if it has ended already.
            let _ = child.kill();
        }
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// The next line; `None` at its end.
    fn listen(&mut self) -> Option<String> {
        let mut told = String::new();
        let length = self.ear.read_line(&mut told).unwrap_or(0);
        (length > 0).then(|| told.trim_end().to_owned())
    }

    fn say(&mut self, line: &str) -> Result<(), NotRun> {
        writeln!(self.mouth, "{line}").map_err(NotRun::Start)
    }
}

/// Answers one of them until it tells what came of it; `None` if it was killed and might be.
fn hear_out(
    mut member: Member,
    may_die: &AtomicBool,
    pauses: Option<&Pauses>,
    is_over: &impl Fn() -> bool,
) -> Result<Option<Tally>, NotRun> {
    loop {
        let Some(told) = member.listen() else {
            let is_the_one = may_die.swap(false, Ordering::Relaxed);
            return if is_the_one { Ok(None) } else { Err(NotRun::Job("a process ended before its work".to_owned())) };
        };
        let Some(holder) = told.strip_prefix(BEFORE_WRITE) else { return Tally::parse(&told).map(Some) };
        let holder = holder.parse()?;
        let Some(pauses) = pauses else {
            member.say(GO)?;
            continue;
        };
        // It reads its answer as soon as it goes on.
        pauses.offer(member.number, member.pid, holder, is_over, || member.say(GO))?;
    }
}
