use crate::change::Change;
use crate::child_socket::{Variable, set_environment};
use crate::descendants::{Descendants, Round, adopt_orphans};
use crate::parent_death_watcher::{Deadlines, NotStarted, ParentDeathWatcher, WatcherMessage};
use crate::terminal;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process_group, waitpid};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The command, in its own process group, and its descendants.
#[derive(Debug)]
pub(crate) struct Child {
    /// The command, which leads its process group.
    pub(crate) pid: Pid,
    changes: Stream,
    /// The watcher process. Without it the command is a child of this process.
    watcher: Option<ParentDeathWatcher>,
    /// The watcher was killed.
    pub(crate) orphaned: bool,
    pub(crate) below: Descendants,
    /// This process has received the exit status of the command.
    reaped: bool,
}

impl Child {
    /// Starts `command` directly, without a shell. If `terminal` is given, the command becomes its foreground group. `locks` are the
    /// open files of the locks, which the watcher keeps open.
    ///
    /// The kernel kills the command when this process dies. Linux binds this to the *thread* that starts the command, so
    /// call it on the main thread.
    pub(crate) async fn start(
        command: &[OsString],
        environment: &[Variable],
        terminal: Option<BorrowedFd<'_>>,
        locks: &[OwnedFd],
    ) -> io::Result<Self> {
        // Subscribe before the start, so that no exit is missed.
        let changes = signal(SignalKind::child())?;
        let (pid, watcher) = match ParentDeathWatcher::start(command, environment, terminal.is_some(), locks).await {
            Ok((watcher, pid)) => (pid, Some(watcher)),
            Err(NotStarted::Command(error)) => return Err(error),
            Err(NotStarted::NoWatcher) => {
                let terminal = terminal.map(|tty| tty.try_clone_to_owned()).transpose()?;
                (spawn(command, environment, Stdio::inherit(), terminal, SigSet::thread_get_mask()?)?, None)
            }
        };
        let below = Descendants::of_this_process(watcher.as_ref().and_then(ParentDeathWatcher::pid));
        Ok(Self { pid, changes, watcher, orphaned: false, below, reaped: false })
    }

    /// Sends a signal to the process group of the command.
    pub(crate) fn signal(&self, signal: Signal) {
        // An empty group is not an error. Termination reports processes that refuse the signal.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Sends KILL to the command and all descendants that are visible now.
    pub(crate) fn kill(&mut self) -> Round {
        let round = self.below.kill();
        // Without /proc no process is visible. The process ID of the command is its own until it is reaped.
        if round.left == 0 && round.refused.is_empty() && self.watcher.is_none() && !self.reaped {
            self.signal(Signal::KILL);
        }
        round
    }

    /// Sends the watcher the deadlines after which it acts.
    pub(crate) fn send_deadlines(&mut self, deadlines: Deadlines) {
        if let Some(watcher) = &mut self.watcher {
            watcher.send_deadlines(deadlines);
        }
    }

    /// Kills a watcher that does not report the death of the command. The command is then a child of this process.
    pub(crate) fn kill_watcher(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.kill();
        }
    }

    /// Releases the command after it has exited. Its descendants keep running.
    pub(crate) fn let_go(self) {
        match self.watcher {
            Some(watcher) => watcher.dismiss(),
            None => drop(adopt_orphans(false)),
        }
    }

    /// Waits for the next notification. Cancel safe.
    pub(crate) async fn notice(&mut self) -> io::Result<WatcherMessage> {
        while let Some(watcher) = &mut self.watcher {
            if let Some(message) = watcher.next_message().await {
                return Ok(message);
            }
            self.orphaned = true;
            self.kill_watcher();
        }
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            if let Some((_, status)) = waitpid(Some(self.pid), options)?
                && let Some(change) = Change::of(status)
            {
                self.reaped = !matches!(change, Change::Stopped(_));
                return Ok(WatcherMessage::Changed(change));
            }
            self.changes.recv().await;
        }
    }
}

/// Starts a command as a child of this process, in its own process group, with the signal mask `mask`.
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
    // Only this program needs SIGTTOU blocked, see [`terminal`].
    mask.remove(nix::sys::signal::Signal::SIGTTOU);
    prepare(&mut builder, terminal, mask);
    let child = builder.spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Configures what the new process does between fork and exec.
fn prepare(builder: &mut Command, terminal: Option<OwnedFd>, mask: SigSet) {
    let parent = getpid();
    let prepare = move || {
        die_with(parent)?;
        if let Some(tty) = &terminal {
            terminal::seize(tty.as_fd(), getpid())?;
        }
        Ok(mask.thread_set_mask()?)
    };
    // SAFETY: after a fork only the calling thread exists, so locks held by others stay locked forever. The closure
    // makes only system calls: it allocates nothing, takes no lock, and its errors are plain numbers.
    #[expect(unsafe_code, reason = "only pre_exec can set the parent-death signal before the command runs")]
    unsafe {
        builder.pre_exec(prepare)
    };
}

/// Makes the kernel kill this process when `parent` dies.
fn die_with(parent: Pid) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before that call, and then the signal is never sent.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}
