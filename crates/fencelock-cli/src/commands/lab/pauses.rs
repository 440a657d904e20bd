//! Pauses processes that hold the lock, as on a machine that swaps, migrates or suspends.

use fencelock_lab::{Entrance, NotRun, Round, Successor};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Mutex;

/// The processes paused in one round. Each is paused once, one at a time, so that another process can always acquire the lock.
pub(super) struct Pauses(Mutex<Paused>);

struct Paused {
    had: HashSet<u32>,
    successor: Successor,
}

impl Pauses {
    pub(super) fn of(round: &Round) -> Result<Self, NotRun> {
        Ok(Self(Mutex::new(Paused { had: HashSet::new(), successor: round.successor()? })))
    }

    /// Lets a process that is about to write `go`: immediately, or, if it has not been paused yet, after a pause until its lock
    /// has expired and another process holds it.
    pub(super) fn offer(
        &self,
        number: u32,
        pid: u32,
        holder: Entrance,
        is_over: impl Fn() -> bool,
        mut go: impl FnMut() -> Result<(), NotRun>,
    ) -> Result<(), NotRun> {
        let Ok(mut paused) = self.0.try_lock() else { return go() };
        if !paused.had.insert(number) {
            return go();
        }
        send_signal(pid, Signal::STOP)?;
        let came = paused.successor.wait(holder, is_over);
        let gone = go();
        send_signal(pid, Signal::CONT)?;
        came.and(gone)
    }
}

fn send_signal(pid: u32, signal: Signal) -> Result<(), NotRun> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(NotRun::Start(ErrorKind::InvalidInput.into()))?;
    kill_process(pid, signal).map_err(|error| NotRun::Start(error.into()))
}
