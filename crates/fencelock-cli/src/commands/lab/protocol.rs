//! What the processes of a story and the one that started them say to each other, and how such a process says it.

use fencelock_lab::{Entrance, Host};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};

/// What a process says when it is connected.
pub(super) const READY: &str = "ready";
/// What it says, followed by the [`Entrance`], when it has the lock and is about to write.
pub(super) const BEFORE_WRITE: &str = "before-write ";
/// What it is told after either.
pub(super) const GO: &str = "go";

/// Whoever started this process, at the other ends of its stdin and stdout.
pub(super) struct Parent(Mutex<Receiver<String>>);

impl Parent {
    /// Listens, and ends this process with its parent. Gives the first line too, the job.
    pub(super) fn hear() -> io::Result<(Self, String)> {
        // A process that stands still does not see the end of its stdin.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let mut job = String::new();
        io::stdin().lock().read_line(&mut job)?;
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || listen(&tell));
        Ok((Self(Mutex::new(told)), job))
    }

    /// Says something, and waits until it may go on.
    fn ask(&self, line: &str) -> io::Result<()> {
        // All answers are the same, so it is enough that each question gets one.
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
        drop(out);
        let answer = told.recv().map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if answer == GO { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

impl Host for Parent {
    fn start(&self) -> io::Result<()> {
        self.ask(READY)
    }

    fn before_write(&self, holder: Entrance) -> io::Result<()> {
        self.ask(&format!("{BEFORE_WRITE}{holder}"))
    }
}

/// Passes on what is said; at the end of it there is nobody any more to work for.
fn listen(tell: &Sender<String>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if tell.send(line).is_err() {
            break;
        }
    }
    let _ = kill_process(getpid(), Signal::KILL);
}
