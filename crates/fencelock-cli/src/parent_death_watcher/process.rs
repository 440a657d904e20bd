use super::{Deadlines, ROLE, WatcherMessage, WrapperMessage};
use crate::change::Change;
use crate::child::spawn;
use crate::child_socket::send;
use crate::descendants::{Descendants, adopt_orphans};
use crate::exit::Exit;
use crate::started::{Job, of_parent, receive};
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, wait};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

/// Runs the watcher: starts the command, reports its state, and kills it with all descendants when the wrapper is dead or
/// late.
///
/// It serves only the `fencelock run` that is its parent process.
pub(crate) fn run(foreground: bool) -> Exit {
    let Some(socket) = of_parent(ROLE, "run") else { return Exit::Usage };
    // Block all signals: the wrapper handles signals that are sent to the job.
    let Ok(mask) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return Exit::Success };
    match Job::receive(socket).and_then(|job| Watcher::start(socket, foreground, job, mask)) {
        Ok(mut watcher) => watcher.run_loop(),
        // A dead wrapper needs no report.
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            let _ = send(socket, &WatcherMessage::Failed(number));
        }
    }
    Exit::Success
}

/// The state of the watcher and its command.
struct Watcher {
    socket: BorrowedFd<'static>,
    /// A part of the next message.
    read: Vec<u8>,
    child_signals: SignalFd,
    timer: OwnedFd,
    command: Pid,
    /// Nobody gets these locks before this process has exited.
    locks: Vec<OwnedFd>,
    below: Descendants,
    deadlines: Deadlines,
    /// The wrapper has died.
    wrapper_dead: bool,
    killing: bool,
    /// Consecutive kill rounds that found only processes that cannot be killed.
    idle_rounds: u32,
}

/// After this many such rounds, the remaining processes belong to another user. Without locks to keep, the watcher exits.
const MAX_IDLE_ROUNDS: u32 = 25;
/// The interval of kill rounds. Processes may start others while they are killed.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// The interval while only processes of another user are left.
const IDLE_ROUND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

impl Watcher {
    fn start(socket: BorrowedFd<'static>, foreground: bool, job: Job, mask: SigSet) -> io::Result<Self> {
        adopt_orphans(true)?;
        let mut ended = SigSet::empty();
        ended.add(Number::SIGCHLD);
        let child_signals = SignalFd::with_flags(&ended, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let tty = foreground.then(|| File::options().read(true).write(true).open("/dev/tty")).transpose()?;
        // The last step that can fail: after it the command runs.
        let command = spawn(&job.command, &[], Stdio::from(job.stdin), tty.map(Into::into), mask)?;
        // Close the inherited output: a reader must see EOF when the command exits, not when the watcher does. A timer accepts no
        // output, and it is there also where /dev/null is not.
        let _ = rustix::stdio::dup2_stdout(&timer);
        let _ = rustix::stdio::dup2_stderr(&timer);
        let watcher = Self {
            socket,
            read: Vec::new(),
            child_signals,
            timer,
            command,
            locks: job.locks,
            below: Descendants::of_this_process(None),
            deadlines: Deadlines::NEVER,
            wrapper_dead: false,
            killing: false,
            idle_rounds: 0,
        };
        watcher.send_message(&WatcherMessage::Started(command.as_raw_pid()));
        Ok(watcher)
    }

    fn run_loop(&mut self) {
        loop {
            if self.read_wrapper() {
                return;
            }
            let no_children_left = self.reap();
            self.check_deadlines();
            if self.killing && !no_children_left {
                self.kill();
            }
            if self.wrapper_dead && (no_children_left || self.is_powerless() && self.locks.is_empty()) {
                return;
            }
            self.sleep();
        }
    }

    fn kill(&mut self) {
        let round = self.below.kill();
        // An empty round proves nothing, as processes start during the scan. Only ECHILD proves it.
        self.idle_rounds = if round.left == 0 && !round.refused.is_empty() { self.idle_rounds + 1 } else { 0 };
    }

    /// Whether only processes of another user are left.
    const fn is_powerless(&self) -> bool {
        self.idle_rounds >= MAX_IDLE_ROUNDS
    }

    /// Reads messages of the wrapper. Returns `true` if the wrapper has requested the exit of the watcher.
    fn read_wrapper(&mut self) -> bool {
        while !self.wrapper_dead {
            match receive::<WrapperMessage>(self.socket, &mut self.read) {
                Ok(Some(None)) => return true,
                Ok(Some(Some((term, kill)))) => {
                    self.deadlines = Deadlines { term: Moment::from_micros(term), kill: Moment::from_micros(kill) };
                    self.set_timer();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // The lock is no longer renewed, and some backends have released it already.
                Ok(None) | Err(_) => (self.wrapper_dead, self.killing) = (true, true),
            }
        }
        false
    }

    /// Reaps the command and orphans. Returns `true` if this process has no children left, according to the kernel.
    fn reap(&mut self) -> bool {
        while let Ok(Some(_)) = self.child_signals.read_signal() {}
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.command => {
                    if let Some(change) = Change::of(status) {
                        self.send_message(&WatcherMessage::Changed(change));
                    }
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Acts if the wrapper is late: it was stopped, or the machine was suspended.
    fn check_deadlines(&mut self) {
        let now = BootClock.now();
        if now >= self.deadlines.kill {
            self.deadlines = Deadlines::NEVER;
            self.killing = true;
            self.send_message(&WatcherMessage::Late(Signal::KILL.as_raw()));
        } else if now >= self.deadlines.term {
            self.deadlines.term = Moment::NEVER;
            self.below.term_group(self.command);
            self.below.term_others();
            self.send_message(&WatcherMessage::Late(Signal::TERM.as_raw()));
        } else {
            return;
        }
        self.set_timer();
    }

    fn set_timer(&self) {
        let next = self.deadlines.term.min(self.deadlines.kill);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let micros = if next == Moment::NEVER { 0 } else { next.as_micros().max(1) };
        let it_value = Duration::from_micros(micros).try_into().unwrap_or(zero);
        // The arguments are valid, and there is no other reason to fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value });
    }

    fn send_message(&self, message: &WatcherMessage) {
        // It fails only if the wrapper is dead, which the socket reports, or stopped for very long.
        let _ = send(self.socket, message);
    }

    fn sleep(&self) {
        let round = if self.is_powerless() { IDLE_ROUND } else { ROUND };
        let mut events = vec![PollFd::new(&self.child_signals, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        if !self.wrapper_dead {
            events.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        let _ = poll(&mut events, self.killing.then_some(&round));
    }
}
