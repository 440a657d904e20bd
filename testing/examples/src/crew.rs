//! Processes of this very program that begin at the same time.

use crate::Failure;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a worker says when it is ready, and what it is told then.
const READY: &str = "ready";
const GO: &str = "go";

/// One process. It is killed if it is dropped before its end.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    ear: BufReader<ChildStdout>,
    mouth: ChildStdin,
}

impl Worker {
    /// Starts this program with other arguments.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn hire(arguments: &[String]) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(mouth), Some(ear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker without a mouth or an ear".into());
        };
        Ok(Self { child, ear: BufReader::new(ear), mouth })
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// If it ended instead; its own words are on standard error.
    pub fn wait_ready(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        self.ear.read_line(&mut line)?;
        if line.trim() == READY { Ok(()) } else { Err("a worker could not begin".into()) }
    }

    /// Lets it begin.
    ///
    /// # Errors
    /// If it has ended.
    pub fn start(&mut self) -> Result<(), Failure> {
        Ok(writeln!(self.mouth, "{GO}")?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it failed.
    pub fn finish(mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a worker failed: {status}").into()) }
    }

    /// Waits until it has stopped itself, as [`stop_myself`] does.
    ///
    /// # Errors
    /// If it ended instead.
    pub fn wait_stopped(&self) -> Result<(), Failure> {
        match waitpid(Some(self.pid()?), WaitOptions::UNTRACED)? {
            Some((_, status)) if status.stopped() => Ok(()),
            _ => Err("a worker ended before it could be stopped".into()),
        }
    }

    /// Lets it go on after that.
    ///
    /// # Errors
    /// If it is gone.
    pub fn wake(&self) -> Result<(), Failure> {
        Ok(kill_process(self.pid()?, Signal::CONT)?)
    }

    fn pid(&self) -> Result<Pid, Failure> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?).ok_or("a process without a number")?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hires a worker for each list of arguments, lets them begin together, and waits for all.
///
/// # Errors
/// If one of them cannot begin or fails; the others are killed then.
pub fn run_together(jobs: &[Vec<String>]) -> Result<(), Failure> {
    let mut workers = jobs.iter().map(|job| Worker::hire(job)).collect::<Result<Vec<_>, _>>()?;
    workers.iter_mut().try_for_each(Worker::wait_ready)?;
    workers.iter_mut().try_for_each(Worker::start)?;
    workers.into_iter().try_for_each(Worker::finish)
}

/// A worker's first words: says that it is ready, and waits until all may begin.
///
/// # Errors
/// If whoever hired it is gone.
pub fn await_start() -> Result<(), Failure> {
    // A worker that has stopped itself must not outlive whoever would wake it.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    println!("{READY}");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    if line.trim() == GO { Ok(()) } else { Err("nobody gave the word to begin".into()) }
}

/// Stops this process, all its threads with it, until somebody wakes it: a stop of the world, a suspended laptop, a
/// machine that swaps.
///
/// # Errors
/// Never, as far as is known.
pub fn stop_myself() -> Result<(), Failure> {
    Ok(kill_process(rustix::process::getpid(), Signal::STOP)?)
}
