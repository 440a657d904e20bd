//! Stops and continues processes.

use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::time::Duration;

/// One poll per millisecond, for much longer than a busy machine needs to stop a process.
const POLLS: u32 = 20_000;

/// Stops a process, and returns when it has stopped.
///
/// `kill` returns before the signal is delivered: the other threads of the process continue, and may answer a message
/// that was sent after the signal.
///
/// # Errors
/// If the process cannot receive the signal, or does not stop within 20 s.
pub fn freeze(pid: u32) -> io::Result<()> {
    signal(pid, Signal::STOP)?;
    for _ in 0..POLLS {
        if has_stopped(pid)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {pid} did not stop in time")))
}

/// Continues a stopped process.
///
/// # Errors
/// If the process cannot receive the signal.
pub fn thaw(pid: u32) -> io::Result<()> {
    signal(pid, Signal::CONT)
}

fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// Whether all threads of the process have stopped.
pub(crate) fn has_stopped(pid: u32) -> io::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // The state follows the name, which is in parentheses and may contain any characters.
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_stopped_process_answers_when_it_continues() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        freeze(cat.id()).unwrap();
        cat.stdin.take().unwrap().write_all(b"hello\n").unwrap();
        assert!(has_stopped(cat.id()).unwrap());
        thaw(cat.id()).unwrap();
        let mut line = String::new();
        BufReader::new(cat.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "hello\n");
        cat.wait().unwrap();
    }

    #[test]
    fn an_unknown_process_causes_an_error() {
        let mut gone = Command::new("true").spawn().unwrap();
        let pid = gone.id();
        gone.wait().unwrap();
        freeze(pid).unwrap_err();
    }
}
