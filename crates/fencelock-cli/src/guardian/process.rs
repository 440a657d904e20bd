use super::socket::{Inbox, peer, receive, receive_stdin, send};
use super::word::{Deadlines, Word};
use super::{News, ROLE, Role};
use crate::child::{self, Change};
use crate::descendants::{Descendants, adopt_orphans};
use crate::exit::Exit;
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use nix::sys::signal::{SigSet, SigmaskHow, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Stdio;

/// The life of a guardian: starts the command, tells what becomes of it, and kills it with all that it has started when
/// the wrapper is dead or late.
///
/// Nothing is started for anybody but the `fencelock run` that is this process's parent.
pub(crate) fn guard(role: &Role) -> Exit {
    let socket = rustix::stdio::stdin();
    match peer(socket) {
        Some(peer) if Some(peer) == rustix::process::getppid() => {}
        // The wrapper may have died in between, and there is nobody to tell.
        Some(_) => return Exit::Usage,
        None => {
            eprintln!("fencelock: {ROLE} is for `fencelock run` itself; see `fencelock run --help`");
            return Exit::Usage;
        }
    }
    // It has no signals of its own: one that ends the job comes to the wrapper, which knows what is to be done.
    let Ok(mask) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return Exit::Success };
    let Some(stdin) = receive_stdin(socket) else { return Exit::Success };
    match Shift::begin(socket, role, stdin, mask) {
        Ok(mut shift) => shift.serve(),
        // A wrapper that is dead by now need not know.
        Err(error) => drop(send(socket, &News::Failed(number(&error)).encode())),
    }
    Exit::Success
}

/// A guardian with its command.
struct Shift {
    socket: BorrowedFd<'static>,
    inbox: Inbox<16>,
    child_signals: SignalFd,
    timer: OwnedFd,
    command: Pid,
    /// The last that was heard of the command is that it was stopped.
    stopped: bool,
    below: Descendants,
    deadlines: Deadlines,
    /// Nobody is above it any more.
    alone: bool,
    killing: bool,
    /// Rounds in a row that met only processes that cannot be killed from here.
    in_vain: u32,
}

/// So many such rounds are the end: what is left belongs to another user.
const VAIN: u32 = 25;
/// How often to look for those that were started while the others were killed, in nanoseconds.
const ROUND: i64 = 2_000_000;

impl Shift {
    fn begin(socket: BorrowedFd<'static>, role: &Role, stdin: OwnedFd, mask: SigSet) -> io::Result<Self> {
        adopt_orphans(true)?;
        let mut ended = SigSet::empty();
        ended.add(Number::SIGCHLD);
        let child_signals = SignalFd::with_flags(&ended, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let tty = role.front.then(|| File::options().read(true).write(true).open("/dev/tty")).transpose()?;
        let null = File::options().write(true).open("/dev/null")?;
        // The last thing that can fail: from here on there is a command.
        let command = child::spawn(&role.command, &[], Stdio::from(stdin), tty.map(Into::into), mask)?;
        // Whoever reads what the command writes waits for the command, not for its guardian.
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
        let shift = Self {
            socket,
            inbox: Inbox::new(),
            child_signals,
            timer,
            command,
            stopped: false,
            below: Descendants::of_this_process(None),
            deadlines: Deadlines::NEVER,
            alone: false,
            killing: false,
            in_vain: 0,
        };
        shift.say(News::Started(command));
        Ok(shift)
    }

    fn serve(&mut self) {
        loop {
            if self.heed_wrapper() {
                return;
            }
            let nobody_left = self.reap();
            self.heed_time();
            if self.killing && !nobody_left {
                self.kill();
            }
            if self.alone && (nobody_left || !self.killing) {
                return;
            }
            self.sleep();
        }
    }

    fn kill(&mut self) {
        let round = self.below.kill();
        // A round that meets nobody is no proof, as processes come and go while it looks; that there is no child is.
        self.in_vain = if round.left == 0 && !round.refused.is_empty() { self.in_vain + 1 } else { 0 };
        self.killing = self.in_vain < VAIN;
    }

    /// Says whether it is dismissed.
    fn heed_wrapper(&mut self) -> bool {
        while !self.alone {
            match receive(self.socket, self.inbox.room()) {
                Ok(0) => self.lose_wrapper(),
                Ok(bytes) => match self.inbox.took(bytes).map(Word::decode) {
                    Some(Word::Dismissed) => return true,
                    Some(Word::Wait(deadlines)) => {
                        self.deadlines = deadlines;
                        self.set_timer();
                    }
                    None => {}
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.lose_wrapper(),
            }
        }
        false
    }

    /// Nobody renews the lock any more, and in some places it is free by now.
    fn lose_wrapper(&mut self) {
        self.alone = true;
        self.killing = true;
    }

    /// Takes leave of the dead: of the command, and of orphans. Says whether there is nobody left below this process,
    /// which the kernel knows for certain.
    fn reap(&mut self) -> bool {
        while let Ok(Some(_)) = self.child_signals.read_signal() {}
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.command => {
                    if let Some(change) = Change::of(status) {
                        self.stopped = matches!(change, Change::Stopped(_));
                        self.say(News::Changed(change));
                    }
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// The wrapper is late: it was stopped, or its machine slept.
    fn heed_time(&mut self) {
        let now = BootClock.now();
        if now >= self.deadlines.kill {
            self.deadlines = Deadlines::NEVER;
            self.killing = true;
            self.say(News::Late(Signal::KILL));
        } else if now >= self.deadlines.term {
            self.deadlines.term = Moment::NEVER;
            self.below.ask_group(self.command);
            self.below.ask_others();
            if self.stopped {
                // Else it could not hear it.
                let _ = kill_process_group(self.command, Signal::CONT);
            }
            self.say(News::Late(Signal::TERM));
        } else {
            return;
        }
        self.set_timer();
    }

    fn set_timer(&self) {
        let next = self.deadlines.term.min(self.deadlines.kill);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let micros = if next == Moment::NEVER { 0 } else { next.as_micros().max(1) };
        let it_value = Timespec {
            tv_sec: i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(micros % 1_000_000).unwrap_or(0) * 1000,
        };
        // Its arguments are in order, and it has no other reason to fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value });
    }

    fn say(&self, news: News) {
        // It can only fail if the wrapper is dead, which the socket tells, or stopped for very long.
        let _ = send(self.socket, &news.encode());
    }

    fn sleep(&self) {
        let round = Timespec { tv_sec: 0, tv_nsec: ROUND };
        let mut events = vec![PollFd::new(&self.child_signals, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        if !self.alone {
            events.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        let _ = poll(&mut events, self.killing.then_some(&round));
    }
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| rustix::io::Errno::IO.raw_os_error())
}
