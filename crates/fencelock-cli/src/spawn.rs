use crate::terminal;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, getpid, getppid};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// An environment variable to set, or to remove if it has no value.
pub(crate) type Variable = (&'static str, Option<String>);

pub(crate) fn set_environment(command: &mut Command, environment: &[Variable]) {
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
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
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The parent may have died before that call, and then the signal is never sent.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}
