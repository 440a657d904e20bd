//! The processes of this system, as `/proc` shows them.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, test_kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The state of a process in `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// `X` for one that is gone.
    pub(crate) state: char,
    /// In ticks since boot; `None` if the system hides the process.
    pub(crate) start: Option<u64>,
}

impl Process {
    pub(crate) fn read(pid: Pid) -> Option<Self> {
        parse(pid, &read_lossy(format!("/proc/{}/stat", pid.as_raw_pid()))?)
    }

    /// A process that the kernel lists but `/proc` does not show: hidden from this user (`hidepid=`), or gone since then.
    pub(crate) fn unread(pid: Pid, parent: Pid) -> Self {
        let state = if test_kill_process(pid) == Err(Errno::PERM) { '?' } else { 'X' };
        Self { pid, parent: parent.as_raw_pid(), group: 0, session: 0, state, start: None }
    }

    /// Sends it a signal, and never to another process that has reused its process ID.
    pub(crate) fn send(self, signal: Signal) -> rustix::io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::process::pidfd_open(self.pid, rustix::process::PidfdFlags::empty()) {
            Ok(process) => {
                if self.start.is_some() && Self::read(self.pid).map(|now| now.start) != Some(self.start) {
                    return Err(Errno::SRCH);
                }
                match rustix::process::pidfd_send_signal(process, signal) {
                    Err(Errno::NOSYS) => {}
                    sent => return sent,
                }
            }
            // The kernel or a sandbox does not support pidfds. Otherwise, the process has exited, or this process has no free
            // file descriptor.
            Err(Errno::SRCH) => return Err(Errno::SRCH),
            Err(_) => {}
        }
        kill_process(self.pid, signal)
    }

    fn fingerprint(self, pid: i32, namespace: u64) -> Option<String> {
        Some(format!("{namespace}:{pid}:{}", self.start?))
    }

    /// Exited, and perhaps not reaped yet.
    pub(crate) const fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Whether this program cannot see what a command starts, although others on this system can.
pub(crate) fn is_blind() -> bool {
    cfg!(target_os = "linux") && !Path::new("/proc/self/stat").exists()
}

/// A file of the kernel. A process gives itself, and its sockets, any name, also one that is not UTF-8.
pub(crate) fn read_lossy(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// The first word after `name`, with which a line of this file begins.
pub(crate) fn word_after(name: &str, path: impl AsRef<Path>) -> Option<String> {
    read_lossy(path)?.lines().find_map(|line| Some(line.strip_prefix(name)?.split_whitespace().next()?.to_owned()))
}

/// The real user of a process; `None` if the system hides it.
pub(crate) fn user_of(pid: i32) -> Option<u32> {
    word_after("Uid:", format!("/proc/{pid}/status"))?.parse().ok()
}

/// Its name, as `ps` shows it without its arguments.
pub(crate) fn name_of(pid: i32) -> String {
    read_lossy(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end_matches('\n').to_owned()
}

pub(crate) fn arguments_of(pid: i32) -> Vec<String> {
    let words = read_lossy(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split_terminator('\0').map(str::to_owned).collect()
}

/// The namespace of the number of this process, or of `self`.
pub(crate) fn namespace_of(process: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/pid")).ok()?.ino())
}

/// Whether a process is stopped by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    Pid::from_raw(pid).and_then(Process::read).is_some_and(|process| process.state == 'T')
}

/// What tells a process apart from every other one of this kernel: its number, the namespace of that, and when it began. `None` if the
/// system hides it.
pub(crate) fn fingerprint(pid: i32, in_proc: i32) -> Option<String> {
    Process::read(Pid::from_raw(in_proc)?)?.fingerprint(pid, namespace_of("self")?)
}

/// A process that this one runs under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ancestor {
    /// In `/proc`.
    pub(crate) pid: i32,
    /// See [`fingerprint`].
    pub(crate) fingerprint: String,
}

pub(crate) fn ancestors() -> Vec<Ancestor> {
    let parent = |process: &Process| Process::read(Pid::from_raw(process.parent)?);
    // Parents may end meanwhile, and numbers be used again: this ends in any case.
    let chain = std::iter::successors(Process::read(getpid()), parent).skip(1).take(1 << 10);
    let namespace = namespace_of("self");
    let ancestor = |process: Process| {
        let pid = process.pid.as_raw_pid();
        Some(Ancestor { pid, fingerprint: process.fingerprint(pid, namespace?)? })
    };
    chain.filter_map(ancestor).collect()
}

/// Whether a child of this name has ended for which the parent of this process, as the first process of a container, does not wait.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no keeper"))]
pub(crate) fn leaves_children_that_ended(name: &str) -> bool {
    let children = getppid().map(children).unwrap_or_default();
    let mut ended = children.into_iter().filter(|child| Process::read(*child).is_some_and(Process::is_dead));
    ended.any(|child| name_of(child.as_raw_pid()) == name)
}

/// A line of `/proc/PID/stat`. The name may contain any characters, so the fields are read from the end of the name.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    Some(Process {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: Some(fields.get(19)?.parse().ok()?),
    })
}

/// The children of all threads of a process.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| pids(list.split_whitespace())).collect()
}

/// The numbers of all processes that `/proc` shows.
pub(crate) fn every_number() -> Vec<Pid> {
    let names: Vec<_> = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    pids(names.iter().filter_map(|name| name.to_str()))
}

fn pids<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Pid> {
    words.filter_map(|word| word.parse().ok().and_then(Pid::from_raw)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_look_like_other_fields() {
        let stat = "7 (a) Z 1 1 (x) S 5 6 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let seven = Pid::from_raw(7).unwrap();
        let wanted = Process { pid: seven, parent: 5, group: 6, session: 6, state: 'S', start: Some(4711) };
        assert_eq!(parse(seven, stat), Some(wanted));
        assert_eq!(parse(seven, "7 (half"), None);
    }
}
