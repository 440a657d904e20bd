use super::{GO, READY};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};

/// What a worker does when its stdin ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnEof {
    /// The worker is killed, because the harness has exited.
    Kill,
    /// [`Harness::receive`] answers `None`, and the worker finishes.
    Finish,
}

/// The process that started this worker, connected by stdin and stdout.
#[derive(Debug)]
pub struct Harness(Mutex<Receiver<String>>);

impl Harness {
    /// Reads stdin on its own thread. On Linux, this process is also killed when the harness dies, because a stopped
    /// process does not see the end of its stdin.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn attach(on_eof: OnEof) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // A worker that no longer receives may continue until its stdin ends.
            io::stdin().lock().lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
            if on_eof == OnEof::Kill {
                let _ = kill_process(getpid(), Signal::KILL);
            }
        });
        Ok(Self(Mutex::new(lines)))
    }

    /// Returns the next line; `None` at the end.
    pub fn receive(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Writes a line to stdout.
    ///
    /// # Errors
    /// If the harness has exited.
    pub fn send(&self, line: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    }

    /// Reports that this worker is ready, and waits until all are.
    ///
    /// # Errors
    /// If the harness has exited.
    pub fn ready(&self) -> io::Result<()> {
        self.send(READY)?;
        match self.receive() {
            Some(answer) if answer.trim_end() == GO => Ok(()),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
