//! All descendants of this process, including those in another process group or session, and those whose parent has exited. This
//! process is a child subreaper, so orphans stay below it.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, test_kill_process, wait};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::path::Path;
use std::{fs, io};
use tokio::signal::unix::{SignalKind, signal};

/// The processes below this one.
#[derive(Debug)]
pub(crate) struct Descendants {
    root: Pid,
    /// The watcher, which is excluded, but not its descendants.
    spared: Option<Pid>,
    /// Processes that have received TERM.
    signalled: HashSet<Identity>,
}

/// A process that cannot be signalled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsignalledProcess {
    pub(crate) pid: i32,
    /// The user that it runs as; `None` if the system hides it.
    pub(crate) uid: Option<u32>,
}

/// The result of a kill round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The number of live processes that received the signal.
    pub(crate) left: usize,
    pub(crate) refused: Vec<UnsignalledProcess>,
}

/// Process IDs are reused, but never with the same start time.
type Identity = (Pid, u64);

/// The state of a process in `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: Pid,
    parent: i32,
    group: i32,
    /// Exited, and not reaped yet.
    dead: bool,
    /// In ticks since boot; `None` if the system hides the process.
    start: Option<u64>,
}

/// Sets whether orphaned descendants become children of this process. Not possible everywhere.
pub(crate) fn adopt_orphans(yes: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::process::set_child_subreaper(yes.then(getpid))?);
    #[cfg(not(target_os = "linux"))]
    return if yes { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) };
}

/// Whether this program cannot see what a command starts, although others on this system can.
pub(crate) fn is_blind() -> bool {
    cfg!(target_os = "linux") && !Path::new("/proc/self/stat").exists()
}

/// Reaps the processes that were left to this one: as the first process of a container it is the parent of all orphans. While a command
/// runs, its state is awaited elsewhere, so do not poll this. Cancel safe.
pub(crate) async fn reap_orphans() -> Infallible {
    let Ok(mut ended) = signal(SignalKind::child()) else { return std::future::pending().await };
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if ended.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

impl Descendants {
    pub(crate) fn of_this_process(spared: Option<Pid>) -> Self {
        Self { root: getpid(), spared, signalled: HashSet::new() }
    }

    /// Sends TERM to a group atomically. Returns the members that refuse it.
    pub(crate) fn term_group(&mut self, group: Pid) -> Vec<UnsignalledProcess> {
        let mut members = self.living();
        members.retain(|process| process.group == raw(group));
        let _ = kill_process_group(group, Signal::TERM);
        // A stopped process handles no signal except KILL. The notification that it was stopped may arrive later, so CONT is
        // always sent. It has no effect on a running process.
        let _ = kill_process_group(group, Signal::CONT);
        self.signalled.extend(members.iter().filter_map(|process| Some((process.pid, process.start?))));
        members.retain(|process| test_kill_process(process.pid) == Err(Errno::PERM));
        members.into_iter().map(Process::unsignalled).collect()
    }

    /// Sends TERM to the descendants that have not received it, because some programs exit immediately on a second one. Returns
    /// those that refuse it.
    pub(crate) fn term_others(&mut self) -> Vec<UnsignalledProcess> {
        let mut others = self.living();
        others.retain(|process| process.start.is_none_or(|start| self.signalled.insert((process.pid, start))));
        others.retain(|process| process.send(Signal::TERM) == Err(Errno::PERM));
        others.into_iter().map(Process::unsignalled).collect()
    }

    /// Sends KILL to all descendants. Repeat it until none is left, as processes may start others meanwhile.
    pub(crate) fn kill(&self) -> Round {
        let mut round = Round::default();
        for process in self.living() {
            match process.send(Signal::KILL) {
                Ok(()) => round.left += 1,
                Err(Errno::PERM) => round.refused.push(process.unsignalled()),
                // It has exited.
                Err(_) => {}
            }
        }
        round
    }

    /// The number of live descendants.
    pub(crate) fn count(&self) -> usize {
        self.living().len()
    }

    fn living(&self) -> Vec<Process> {
        living(self.spared, || self.all())
    }

    fn all(&self) -> Vec<Process> {
        if Path::new("/proc/thread-self/children").exists() {
            self.by_children()
        } else {
            by_parents(self.root, &every_process(self.root))
        }
    }

    /// The kernel lists the children of a thread, if it was built with this option, as nearly all are.
    fn by_children(&self) -> Vec<Process> {
        let (mut found, mut next) = (Vec::new(), vec![self.root]);
        let mut family = HashSet::from([self.root.as_raw_nonzero().get()]);
        while let Some(parent) = next.pop() {
            for pid in children(parent) {
                let process = Process::read(pid).unwrap_or_else(|| Process::unread(pid, parent));
                // The process ID may be reused. The parent of a descendant is a known descendant.
                if family.contains(&process.parent) && family.insert(raw(pid)) {
                    found.push(process);
                    next.push(pid);
                }
            }
        }
        found
    }
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        parse(pid, &read_lossy(format!("/proc/{}/stat", raw(pid)))?)
    }

    /// A process that the kernel lists but `/proc` does not show: hidden from this user (`hidepid=`), or gone since then.
    fn unread(pid: Pid, parent: Pid) -> Self {
        let hidden = test_kill_process(pid) == Err(Errno::PERM);
        Self { pid, parent: raw(parent), group: 0, dead: !hidden, start: None }
    }

    /// Sends it a signal, and never to another process that has reused its process ID.
    fn send(self, signal: Signal) -> rustix::io::Result<()> {
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

    #[cfg(target_os = "linux")]
    fn fingerprint(self, pid: i32, namespace: u64) -> Option<String> {
        Some(format!("{namespace}:{pid}:{}", self.start?))
    }

    fn unsignalled(self) -> UnsignalledProcess {
        let pid = raw(self.pid);
        UnsignalledProcess { pid, uid: user_of(pid) }
    }
}

/// The processes that are alive, but for `spared`. A process whose parent exits during a scan may be on no list that the scan reads. So
/// that none is left is believed of a scan in which nobody has died.
fn living(spared: Option<Pid>, mut scan: impl FnMut() -> Vec<Process>) -> Vec<Process> {
    let mut dead = None;
    loop {
        let (gone, mut alive): (Vec<_>, Vec<_>) = scan().into_iter().partition(|process| process.dead);
        alive.retain(|process| Some(process.pid) != spared);
        let gone: HashSet<_> = gone.into_iter().map(|process| (process.pid, process.start)).collect();
        if !alive.is_empty() || dead.as_ref().is_some_and(|dead| gone.is_subset(dead)) {
            return alive;
        }
        dead = Some(gone);
    }
}

/// A file of the kernel. A process gives itself, and its sockets, any name, also one that is not UTF-8.
pub(crate) fn read_lossy(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// The real user of a process; `None` if the system hides it.
pub(crate) fn user_of(pid: i32) -> Option<u32> {
    let status = read_lossy(format!("/proc/{pid}/status"))?;
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
}

/// What tells a process apart from every other one of this kernel: its number, the namespace of that, and when it began. `None` if the
/// system hides it.
#[cfg(target_os = "linux")]
pub(crate) fn fingerprint(pid: i32, in_proc: i32) -> Option<String> {
    Process::read(Pid::from_raw(in_proc)?)?.fingerprint(pid, namespace()?)
}

/// A process that this one runs under.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ancestor {
    /// In `/proc`.
    pub(crate) pid: i32,
    /// See [`fingerprint`].
    pub(crate) fingerprint: String,
}

#[cfg(target_os = "linux")]
pub(crate) fn ancestors() -> Vec<Ancestor> {
    let parent = |process: &Process| Process::read(Pid::from_raw(process.parent)?);
    // Parents may end meanwhile, and numbers be used again: this ends in any case.
    let chain = std::iter::successors(Process::read(getpid()), parent).skip(1).take(1 << 10);
    let Some(namespace) = namespace() else { return Vec::new() };
    let ancestor = |process: Process| {
        let pid = raw(process.pid);
        Some(Ancestor { pid, fingerprint: process.fingerprint(pid, namespace)? })
    };
    chain.filter_map(ancestor).collect()
}

/// The number of the process of a descriptor, in `/proc`.
#[cfg(target_os = "linux")]
pub(crate) fn number_in(fdinfo: &str) -> Option<i32> {
    let facts = fs::read_to_string(fdinfo).ok()?;
    facts.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

/// The namespace of the numbers of processes.
#[cfg(target_os = "linux")]
fn namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// A line of `/proc/PID/stat`. The name may contain any characters, so the fields are read from the end of the name.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    Some(Process {
        pid,
        dead: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        start: Some(fields.get(19)?.parse().ok()?),
    })
}

/// The children of all threads of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", raw(pid))).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| pids(list.split_whitespace())).collect()
}

/// What cannot be read is gone, or of another user. It may have been a child of `root`.
fn every_process(root: Pid) -> Vec<Process> {
    let gone = |pid| Process { dead: true, ..Process::unread(pid, root) };
    every_number().into_iter().map(|pid| Process::read(pid).unwrap_or_else(|| gone(pid))).collect()
}

/// The numbers of all processes that `/proc` shows.
pub(crate) fn every_number() -> Vec<Pid> {
    let names: Vec<_> = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    pids(names.iter().filter_map(|name| name.to_str()))
}

/// The processes of `all` that are descendants of `root`.
fn by_parents(root: Pid, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let (mut found, mut next) = (Vec::new(), vec![raw(root)]);
    while let Some(parent) = next.pop() {
        // Each process has one parent, so this ends even for an inconsistent snapshot with cycles.
        let below = children.remove(&parent).unwrap_or_default();
        next.extend(below.iter().map(|process| raw(process.pid)));
        found.extend(below);
    }
    found
}

fn pids<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Pid> {
    words.filter_map(|word| word.parse().ok().and_then(Pid::from_raw)).collect()
}

pub(crate) fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn process(number: i32, parent: i32) -> Process {
        Process { pid: pid(number), parent, group: number, dead: false, start: Some(1) }
    }

    #[test]
    fn a_process_name_may_look_like_other_fields() {
        let stat = "7 (a) Z 1 1 (x) S 5 6 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        let wanted = Process { pid: pid(7), parent: 5, group: 6, dead: false, start: Some(4711) };
        assert_eq!(parse(pid(7), stat), Some(wanted));
        assert_eq!(parse(pid(7), "7 (half"), None);
    }

    #[test]
    fn a_scan_finds_all_descendants_and_no_other_process() {
        let all = [process(2, 1), process(10, 5), process(3, 10), process(4, 3), process(5, 1), process(6, 2)];
        let mut found: Vec<_> = by_parents(pid(5), &all).into_iter().map(|process| raw(process.pid)).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4, 10]);
    }

    #[test]
    fn a_process_whose_parent_exits_during_the_scan_is_found() {
        let dead = |number| Process { dead: true, ..process(number, 1) };
        // A child of 3 that a scan misses, because 3 exits after the scan has read the children of 1.
        let mut scans =
            [vec![dead(3), process(2, 1)], vec![dead(3), dead(4)], vec![dead(3), dead(4), process(9, 1)]].into_iter();
        let found = living(Some(pid(2)), || scans.next().unwrap());
        assert_eq!(found, [process(9, 1)]);
        assert_eq!(living(None, || vec![dead(3)]), []);
    }

    #[test]
    fn a_snapshot_with_a_cycle_is_scanned_once() {
        assert_eq!(by_parents(pid(5), &[process(6, 5), process(5, 6)]).len(), 2);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn both_scans_find_the_same_processes() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let has = |found: Vec<Process>| found.iter().any(|process| raw(process.pid) == number);
        assert!(has(Descendants::of_this_process(None).by_children()));
        assert!(has(by_parents(getpid(), &every_process(getpid()))));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
