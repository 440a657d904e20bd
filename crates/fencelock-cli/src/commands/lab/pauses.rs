//! Processes that stand still while they have the lock, as on a machine that swaps, migrates or closes its lid.

use fencelock_lab::{Entrance, NotRun, Round, Successor};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Mutex;

/// Who has stood still in one round. Each process does so once, one after the other, so that there is always one to come in.
pub(super) struct Pauses(Mutex<Paused>);

struct Paused {
    had: HashSet<u32>,
    successor: Successor,
}

impl Pauses {
    pub(super) fn of(round: &Round) -> Result<Self, NotRun> {
        Ok(Self(Mutex::new(Paused { had: HashSet::new(), successor: round.successor()? })))
    }

    /// Lets a process that is about to write `go`: at once, or, if it is its turn, after it has stood still until its lock has
    /// ended and another one has come in.
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
        stand(pid, Signal::STOP)?;
        let came = paused.successor.wait(holder, is_over);
        let gone = go();
        stand(pid, Signal::CONT)?;
        came.and(gone)
    }
}

fn stand(pid: u32, signal: Signal) -> Result<(), NotRun> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(NotRun::Start(ErrorKind::InvalidInput.into()))?;
    kill_process(pid, signal).map_err(|error| NotRun::Start(error.into()))
}
