use crate::descendants::{Descendants, Refusal, Round, adopt_orphans};
use crate::guardian::{Deadlines, Guardian, News, NotStarted};
use crate::terminal;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process_group, waitpid};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The command, in a process group of its own, and all that it has started.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    changes: Stream,
    /// What stands between this process and the command. Without it the command is a child of this process.
    guardian: Option<Guardian>,
    /// The guardian was killed.
    orphaned: bool,
    below: Descendants,
}

/// A variable that a command gets, or does not get.
pub(crate) type Variable = (&'static str, Option<String>);

pub(crate) fn set_environment(command: &mut Command, environment: &[Variable]) {
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// What became of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended by itself with this code.
    Exited(u8),
    /// A signal ended it.
    Killed(i32),
    /// A signal stopped it.
    Stopped(i32),
}

/// What there is to tell of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Something became of it.
    Changed(Change),
    /// This process was late, so the guardian has sent this signal to it and to all that it has started.
    Late(Signal),
}

impl Change {
    /// What the system says of a child.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        // The kernel keeps eight bits of a code.
        let exited = |code: i32| Self::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX));
        let ended = status.exit_status().map(exited).or_else(|| status.terminating_signal().map(Self::Killed));
        ended.or_else(|| status.stopping_signal().map(Self::Stopped))
    }
}

impl Child {
    /// Starts `command` directly, without a shell. `terminal` is handed to it if given.
    ///
    /// It dies with this process, whatever happens to this process. Linux binds it to the *thread* that starts it, so
    /// this must be called on the main thread.
    pub(crate) async fn start(
        command: &[OsString],
        environment: &[Variable],
        terminal: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        // Before the start, so that no end can be missed.
        let changes = signal(SignalKind::child())?;
        let (pid, guardian) = match Guardian::start(command, environment, terminal.is_some()).await {
            Ok((guardian, pid)) => (pid, Some(guardian)),
            Err(NotStarted::Command(error)) => return Err(error),
            Err(NotStarted::NoGuardian) => {
                let terminal = terminal.map(|tty| tty.try_clone_to_owned()).transpose()?;
                (spawn(command, environment, Stdio::inherit(), terminal, SigSet::thread_get_mask()?)?, None)
            }
        };
        let below = Descendants::of_this_process(guardian.as_ref().and_then(Guardian::pid));
        Ok(Self { pid, changes, guardian, orphaned: false, below })
    }

    /// Its process, which leads its group.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the command and everything that it has started in its group.
    pub(crate) fn signal(&self, signal: Signal) {
        // That nobody is left is no failure; who does not take it is told by those who end the command.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Asks the command and everything that it has started in its group to end. Returns those that cannot be asked.
    pub(crate) fn ask(&mut self) -> Vec<Refusal> {
        self.below.ask_group(self.pid)
    }

    /// Asks all those that were not asked yet.
    pub(crate) fn ask_others(&mut self) -> Vec<Refusal> {
        self.below.ask_others()
    }

    /// Kills the command and everything that it has started, as far as it can be seen now.
    pub(crate) fn kill(&mut self) -> Round {
        self.below.kill()
    }

    /// How many processes that the command has started are alive.
    pub(crate) fn rest(&self) -> usize {
        self.below.count()
    }

    /// Tells the guardian until when it is to wait for this process.
    pub(crate) fn tell(&mut self, deadlines: Deadlines) {
        if let Some(guardian) = &mut self.guardian {
            guardian.tell(deadlines);
        }
    }

    /// The command is dead, and the guardian does not tell of it. Without it the command is a child of this process.
    pub(crate) fn give_up_guardian(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.bury();
        }
    }

    /// Whether the guardian was killed.
    pub(crate) const fn is_orphaned(&self) -> bool {
        self.orphaned
    }

    /// The command has ended, and what it left behind is its own affair.
    pub(crate) fn let_go(self) {
        match self.guardian {
            Some(guardian) => guardian.dismiss(),
            None => drop(adopt_orphans(false)),
        }
    }

    /// Waits until there is something to tell of it. Cancel safe.
    pub(crate) async fn notice(&mut self) -> io::Result<Notice> {
        while let Some(guardian) = &mut self.guardian {
            match guardian.news().await {
                Some(News::Changed(change)) => return Ok(Notice::Changed(change)),
                Some(News::Late(signal)) => return Ok(Notice::Late(signal)),
                Some(News::Started(_) | News::Failed(_)) => {}
                None => {
                    self.orphaned = true;
                    self.give_up_guardian();
                }
            }
        }
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            if let Some((_, status)) = waitpid(Some(self.pid), options)?
                && let Some(change) = Change::of(status)
            {
                return Ok(Notice::Changed(change));
            }
            self.changes.recv().await;
        }
    }
}

/// Starts a command as a child of this process, in a group of its own. Signals in `mask` are blocked in it.
pub(crate) fn spawn(
    command: &[OsString],
    environment: &[Variable],
    stdin: Stdio,
    terminal: Option<OwnedFd>,
    mut mask: SigSet,
) -> io::Result<Pid> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut builder = Command::new(program);
    builder.args(arguments).process_group(0).stdin(stdin);
    set_environment(&mut builder, environment);
    // It is blocked for the sake of this program alone, see [`terminal`].
    mask.remove(nix::sys::signal::Signal::SIGTTOU);
    prepare(&mut builder, terminal, mask);
    let child = builder.spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the new process does between fork and exec.
fn prepare(builder: &mut Command, terminal: Option<OwnedFd>, mask: SigSet) {
    let parent = getpid();
    let prepare = move || {
        die_with(parent)?;
        if let Some(tty) = &terminal {
            terminal::seize(tty.as_fd(), getpid())?;
        }
        Ok(mask.thread_set_mask()?)
    };
    // SAFETY: after a fork only the calling thread exists, so locks held by others stay locked for ever. The closure
    // makes nothing but system calls: it allocates nothing, takes no lock, and its errors are plain numbers.
    #[expect(unsafe_code, reason = "there is no other way to be told of the parent's death before the command runs")]
    unsafe {
        builder.pre_exec(prepare)
    };
}

/// Asks the kernel to kill this process when `parent` dies.
fn die_with(parent: Pid) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that call, and then nobody would ever send the signal.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}
