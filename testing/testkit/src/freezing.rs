//! Processes that are stopped for a while.

use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::time::Duration;

/// One each millisecond: far longer than a busy machine needs to stop a process.
const LOOKS: u32 = 20_000;

/// Stops a process, and returns when it has stopped.
///
/// `kill` returns when the signal is on its way: until one of its threads has taken it, the others go on, and may answer
/// a message that was sent after the signal.
///
/// # Errors
/// If it cannot be signalled, or does not stop within 20 s.
pub fn freeze(pid: u32) -> io::Result<()> {
    signal(pid, Signal::STOP)?;
    for _ in 0..LOOKS {
        if has_stopped(pid)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {pid} does not stop")))
}

/// Lets a stopped process go on.
///
/// # Errors
/// If it cannot be signalled.
pub fn thaw(pid: u32) -> io::Result<()> {
    signal(pid, Signal::CONT)
}

fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// Whether each thread of it has stopped.
fn has_stopped(pid: u32) -> io::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // The state follows the name, which is in parentheses and may hold anything.
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
    fn what_is_sent_to_a_frozen_process_is_answered_when_it_goes_on() {
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
    fn a_process_that_is_gone_is_an_error() {
        let mut gone = Command::new("true").spawn().unwrap();
        let pid = gone.id();
        gone.wait().unwrap();
        freeze(pid).unwrap_err();
    }
}
