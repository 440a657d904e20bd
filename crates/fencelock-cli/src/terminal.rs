use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, getsid, kill_current_process_group, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};

/// The terminal that this process was started from.
///
/// The command runs in a process group of its own, and a terminal serves one group at a time. So it is handed to the
/// command's group and taken back afterwards, as a shell does with its jobs.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
    /// How it was set before the command could touch it.
    settings: Option<Termios>,
    /// The command gets it from the beginning. In `fencelock run KEY -- report | less` it is `less` that needs it.
    from_start: bool,
    /// The command has asked for it by now.
    wanted: bool,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub(crate) fn find() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        // SIGTTOU stops a background process that changes the group of a terminal or writes to it, unless the signal is
        // blocked. The command starts with the original mask.
        keep_ttou_out().ok()?;
        let settings = tcgetattr(&tty).ok();
        let from_start = io::stdin().is_terminal() && io::stdout().is_terminal();
        Some(Self { tty, own: getpgrp(), settings, from_start, wanted: false })
    }

    /// The terminal if the command is to have it as soon as it starts.
    pub(crate) fn for_start(&self) -> Option<BorrowedFd<'_>> {
        (self.from_start && self.is_ours()).then(|| self.tty.as_fd())
    }

    /// Whether it serves our process group now.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.own)
    }

    /// The command was stopped because it asked for the terminal.
    pub(crate) fn ask(&mut self) {
        self.wanted = true;
    }

    /// Hands it to the command if it is ours to give and the command has use for it.
    pub(crate) fn give_to(&self, group: Pid) {
        if (self.from_start || self.wanted) && self.is_ours() {
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Takes it back if the command has it.
    pub(crate) fn take_from(&self, group: Pid) {
        if tcgetpgrp(&self.tty).is_ok_and(|now| now == group) {
            let _ = tcsetpgrp(&self.tty, self.own);
        }
    }

    /// Takes it back after a command for which it was meant could not be started.
    pub(crate) fn reclaim(&self) {
        let _ = tcsetpgrp(&self.tty, self.own);
    }

    /// Undoes what a command that was killed left behind: no echo, no line editing.
    pub(crate) fn repair(&self) {
        if let Some(settings) = &self.settings
            && self.is_ours()
        {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, settings);
        }
    }
}

/// Whether a shell stands above that can bring a stopped job back. It puts jobs into groups other than its own.
pub(crate) fn has_job_control() -> bool {
    getsid(None).and_then(|leader| getpgid(Some(leader))).is_ok_and(|group| group != getpgrp())
}

/// Stops the job of which this process is a part; returns when the shell lets it go on.
pub(crate) fn stop_job() {
    // The others of the job (a script, a pipeline) are stopped as ^Z would.
    let _ = kill_current_process_group(Signal::TSTP);
    stop_self();
}

/// Stops this process alone, in the one way that a handler cannot take.
pub(crate) fn stop_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

fn keep_ttou_out() -> nix::Result<()> {
    ttou().thread_block()
}

fn ttou() -> nix::sys::signal::SigSet {
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(nix::sys::signal::Signal::SIGTTOU);
    set
}

/// Makes `group` the one that `tty` serves, from a process between fork and exec: system calls only.
pub(crate) fn seize(tty: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    ttou().thread_block()?;
    let taken = tcsetpgrp(tty, group);
    ttou().thread_unblock()?;
    Ok(taken?)
}
