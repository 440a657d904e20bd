//! A second process for the case that the wrapper is killed.
//!
//! The kernel kills the command with its parent, but not what the command has started: of `sh -c 'dump | upload'` only
//! the shell would die, and the upload would go on without its lock. No handler can help against KILL, so somebody else
//! must be there: a process that holds the reading end of a pipe. The end of the pipe tells it of the wrapper's death,
//! however that came.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The first argument of such a process. It is nobody else's business, so no help mentions it.
const ROLE: &str = "--guard-group";

/// The wrapper's end of the pipe.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
}

impl Guardian {
    /// From now on the group is killed if this process dies.
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("fencelock").args([ROLE, &group.as_raw_nonzero().to_string()]);
        // A group of its own, so that nothing typed at a terminal ends it, and no hold on any directory or stream.
        command.process_group(0).current_dir("/").env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: command.spawn()? })
    }

    /// The command has ended: what it left behind is its own affair.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.process.stdin.take() {
            // It can only fail if the guardian is dead.
            let _ = pipe.write_all(b".");
        }
        let _ = self.process.wait();
    }
}

/// Whether this process was started as a guardian; if so, of which group.
pub(crate) fn role() -> Option<Pid> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    Pid::from_raw(arguments.next()?.to_str()?.parse().ok()?)
}

/// Waits for the end of the wrapper or a word from it.
pub(crate) fn guard(group: Pid) {
    if matches!(io::stdin().read(&mut [0]), Ok(0)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
