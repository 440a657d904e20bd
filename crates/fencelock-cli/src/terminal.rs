use nix::unistd::{getpgid, getpgrp, getsid};
use rustix::process::{Pid, Signal, getpid, kill_current_process_group, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};

/// The terminal that this process was started from.
///
/// The command runs in a process group of its own, and a terminal serves one group at a time. So it is given to the group of the
/// command, and taken back afterwards, as a shell does with its jobs.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
    /// Its settings before the command was started.
    settings: Option<Termios>,
    /// The command gets the terminal when it starts. In `fencelock run KEY -- report | less`, `less` needs it instead.
    from_start: bool,
    /// The command has requested the terminal.
    wanted: bool,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub(crate) fn find() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        // SIGTTOU stops a background process that changes the group of a terminal or writes to it, unless the signal is
        // blocked. The command starts with the original mask.
        ttou().thread_block().ok()?;
        let own = own_group()?;
        let settings = tcgetattr(&tty).ok();
        let from_start = io::stdin().is_terminal() && io::stdout().is_terminal();
        Some(Self { tty, own, settings, from_start, wanted: false })
    }

    /// The terminal if the command is to have it as soon as it starts.
    pub(crate) fn for_start(&self) -> Option<BorrowedFd<'_>> {
        (self.from_start && self.is_ours()).then(|| self.tty.as_fd())
    }

    /// Whether the process group of this process is now the foreground group.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.own)
    }

    /// Records that the command was stopped because it used the terminal.
    pub(crate) fn request(&mut self) {
        self.wanted = true;
    }

    /// Gives the terminal to the command, if this process has it and the command needs it.
    pub(crate) fn give_to(&self, group: Pid) {
        if (self.from_start || self.wanted) && self.is_ours() {
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Takes it back if the command has it. Returns whether it had it.
    pub(crate) fn take_from(&self, group: Pid) -> bool {
        let had_it = tcgetpgrp(&self.tty).is_ok_and(|now| now == group);
        if had_it {
            let _ = tcsetpgrp(&self.tty, self.own);
        }
        had_it
    }

    /// Takes it back if the command could not be started.
    pub(crate) fn reclaim(&self) {
        let _ = tcsetpgrp(&self.tty, self.own);
    }

    /// Restores the settings after a command was killed: it may have turned off echo or line editing.
    pub(crate) fn repair(&self) {
        if let Some(settings) = &self.settings
            && self.is_ours()
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, settings);
        }
    }
}

/// Whether the terminal sends its signals to the process group of this process.
pub(crate) fn in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(is_foreground_of)
}

/// Whether this is a terminal, and the process group of this process is in its foreground.
pub(crate) fn is_foreground_of(tty: impl AsFd) -> bool {
    tcgetpgrp(tty).is_ok_and(|group| own_group() == Some(group))
}

/// None if it began outside the namespace of this process, where its number is zero. For rustix, none has this number.
fn own_group() -> Option<Pid> {
    Pid::from_raw(getpgrp().as_raw())
}

/// Whether a shell can resume this job when it is stopped. Such a shell runs jobs in process groups other than its own.
pub(crate) fn has_job_control() -> bool {
    getsid(None).and_then(|leader| getpgid(Some(leader))).is_ok_and(|group| group != getpgrp())
}

/// Stops the job of this process; returns when the shell continues it.
pub(crate) fn stop_job() {
    // Stops the other processes of the job (a script, a pipeline), as ^Z does.
    let _ = kill_current_process_group(Signal::TSTP);
    stop_self();
}

/// Stops only this process, with the signal that no handler can catch.
pub(crate) fn stop_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

fn ttou() -> nix::sys::signal::SigSet {
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(nix::sys::signal::Signal::SIGTTOU);
    set
}

/// Makes `group` the foreground group of `tty`. Runs between fork and exec, so it makes only system calls.
pub(crate) fn seize(tty: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    ttou().thread_block()?;
    let taken = tcsetpgrp(tty, group);
    ttou().thread_unblock()?;
    Ok(taken?)
}
