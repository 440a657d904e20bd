use super::{GO, READY};
use fencelock::Clock;
use fencelock::backends::BootClock;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often an exiting worker is polled.
const POLL: Duration = Duration::from_millis(5);

/// The running workers. Another thread can stop all of them.
#[derive(Debug, Default)]
pub struct WorkerPool(Mutex<Members>);

#[derive(Debug, Default)]
struct Members {
    is_stopped: bool,
    children: Vec<Weak<Mutex<Child>>>,
}

impl WorkerPool {
    /// Kills all workers. No worker starts afterwards.
    pub fn stop(&self) {
        let mut members = lock(&self.0);
        members.is_stopped = true;
        for child in members.children.iter().filter_map(Weak::upgrade) {
            // This fails only if the process has exited.
            let _ = lock(&child).kill();
        }
    }

    /// Whether [`WorkerPool::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        lock(&self.0).is_stopped
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// Errors of the operating system, and [`io::ErrorKind::Interrupted`] after [`WorkerPool::stop`].
    pub fn spawn(&self, mut command: Command) -> io::Result<Worker> {
        let mut members = lock(&self.0);
        if members.is_stopped {
            return Err(io::ErrorKind::Interrupted.into());
        }
        // A separate process group: Ctrl-C at a terminal reaches only the harness, which removes its keys before it
        // exits.
        let mut child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let worker = Worker { pid: child.id(), child: Arc::new(Mutex::new(child)), stdin, stdout };
        members.children.retain(|child| child.strong_count() > 0);
        members.children.push(Arc::downgrade(&worker.child));
        Ok(worker)
    }
}

/// A worker process. Dropping kills it.
#[derive(Debug)]
pub struct Worker {
    pid: u32,
    child: Arc<Mutex<Child>>,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Worker {
    /// The process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// If the worker has exited.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?, "{line}")
    }

    /// Returns the next line of its stdout; `None` at the end.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn receive(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let length = self.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.read_line(&mut line)?;
        Ok((length > 0).then(|| line.trim_end().to_owned()))
    }

    /// Returns its stdout, for a thread that reads it; [`Worker::receive`] fails from then on.
    pub const fn take_stdout(&mut self) -> Option<BufReader<ChildStdout>> {
        self.stdout.take()
    }

    /// Closes its stdin. With [`OnEof::Finish`](super::OnEof::Finish), the worker then finishes.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the worker exits by itself.
    ///
    /// # Errors
    /// If it does not exit within `limit`, or fails.
    pub fn finish(self, limit: Duration) -> io::Result<()> {
        let deadline = BootClock.now() + limit;
        loop {
            match lock(&self.child).try_wait()? {
                Some(status) => return succeeded(status),
                None if BootClock.now() >= deadline => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "a worker did not exit in time"));
                }
                None => {}
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process has exited.
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Waits until all workers are ready, and then starts all of them.
///
/// # Errors
/// If a worker exits or sends anything else.
pub fn start(workers: &mut [Worker]) -> io::Result<()> {
    for worker in &mut *workers {
        if worker.receive()?.as_deref() != Some(READY) {
            return Err(io::Error::other("a worker did not report that it is ready"));
        }
    }
    workers.iter_mut().try_for_each(|worker| worker.send(GO))
}

fn succeeded(status: ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("a worker failed: {status}"))) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
