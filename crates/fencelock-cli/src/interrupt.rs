//! The end of this program by ^C.
//!
//! A shell ends its script if it receives INT itself *and* its command dies of it. A command that exits with 130 has handled the
//! signal, and the script continues.

use crate::exit::Exit;
use crate::signals::{Signals, is_interrupt};
use crate::terminal::in_foreground;
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_current_process_group, kill_process, setrlimit};

/// Dies of the signal that has ended the command or the wait, if it may come from the terminal. Otherwise, and where the kernel
/// does not let this process die of it (process 1 of a container), returns.
pub(crate) fn die_of(exit: Exit) {
    let (signal, job) = match exit {
        // The terminal sent it to the group of the command only.
        Exit::Interrupted(signal) => (signal, true),
        Exit::Signalled(number) => match Signal::from_named_raw(number) {
            Some(signal) if is_interrupt(signal) && in_foreground() => (signal, false),
            _ => return,
        },
        _ => return,
    };
    if Signals::is_ignored(signal) || restore_default_action(signal).is_err() {
        return;
    }
    leave_no_core();
    if job {
        let _ = kill_current_process_group(signal);
    }
    let _ = kill_process(getpid(), signal);
}

/// QUIT writes the memory of this process to a file, and passwords are part of it.
fn leave_no_core() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // The limit does not apply to a program that receives cores through a pipe.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

fn restore_default_action(signal: Signal) -> nix::Result<()> {
    let signal = nix::sys::signal::Signal::try_from(signal.as_raw())?;
    // SAFETY: the default action runs no code of this program.
    #[expect(unsafe_code, reason = "the system call takes a function pointer, and the default action is none")]
    unsafe {
        nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl)?;
    }
    Ok(())
}
