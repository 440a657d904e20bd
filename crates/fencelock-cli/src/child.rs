use crate::terminal;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process_group, test_kill_process_group, waitpid,
};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The command, in a process group of its own.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    changes: Stream,
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

impl Child {
    /// Starts `command` directly, without a shell. `terminal` is handed to it if given.
    ///
    /// It dies with this process, whatever happens to this process. Linux binds it to the *thread* that starts it, so
    /// this must be called on the main thread.
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(&str, String)],
        terminal: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        // Before the start, so that no end can be missed.
        let changes = signal(SignalKind::child())?;
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut builder = Command::new(program);
        builder.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
        prepare(&mut builder, terminal.map(|tty| tty.try_clone_to_owned()).transpose()?);
        let child = builder.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, changes })
    }

    /// Its process, which leads its group.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the command and everything that it has started in its group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The only failure is that nobody is left.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Whether anybody of its group is alive.
    pub(crate) fn has_group(&self) -> bool {
        test_kill_process_group(self.pid).is_ok()
    }

    /// Waits until it ends or stops. Cancel safe.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            if let Some((_, status)) = waitpid(Some(self.pid), options)? {
                if let Some(code) = status.exit_status() {
                    // The kernel keeps eight bits.
                    return Ok(Change::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
                }
                if let Some(signal) = status.terminating_signal() {
                    return Ok(Change::Killed(signal));
                }
                if let Some(signal) = status.stopping_signal() {
                    return Ok(Change::Stopped(signal));
                }
            }
            self.changes.recv().await;
        }
    }
}

/// What the new process does between fork and exec.
fn prepare(builder: &mut Command, terminal: Option<OwnedFd>) {
    let parent = getpid();
    let prepare = move || {
        die_with(parent)?;
        match &terminal {
            Some(tty) => terminal::seize(tty.as_fd(), getpid()),
            None => Ok(()),
        }
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
