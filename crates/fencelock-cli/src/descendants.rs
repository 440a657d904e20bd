//! All descendants of this process, including those in another process group or session, and those whose parent has exited. This
//! process is a child subreaper, so orphans stay below it.

use crate::proc::{Process, children, every_number};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, test_kill_process, wait};
use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// The processes below this one.
#[derive(Debug)]
pub(crate) struct Descendants {
    /// The watcher, which is excluded, but not its descendants.
    spared: Option<Pid>,
    /// Processes that have received TERM. Process IDs are reused, but never with the same start time.
    signalled: HashSet<(Pid, u64)>,
}

/// The result of a kill round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The number of live processes that received the signal.
    pub(crate) left: usize,
    /// Those that cannot be signalled.
    pub(crate) refused: Vec<Process>,
}

/// Sets whether orphaned descendants become children of this process. Not possible everywhere.
pub(crate) fn adopt_orphans(yes: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::process::set_child_subreaper(yes.then(getpid))?);
    #[cfg(not(target_os = "linux"))]
    return if yes { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) };
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
        Self { spared, signalled: HashSet::new() }
    }

    /// Sends TERM to a group atomically. Returns the members that refuse it.
    pub(crate) fn term_group(&mut self, group: Pid) -> Vec<Process> {
        let mut members = self.living();
        members.retain(|process| process.group == group.as_raw_pid());
        let _ = kill_process_group(group, Signal::TERM);
        // A stopped process handles no signal except KILL. The notification that it was stopped may arrive later, so CONT is
        // always sent. It has no effect on a running process.
        let _ = kill_process_group(group, Signal::CONT);
        self.signalled.extend(members.iter().filter_map(|process| Some((process.pid, process.start?))));
        members.retain(|process| test_kill_process(process.pid) == Err(Errno::PERM));
        members
    }

    /// Sends TERM to the descendants that have not received it, because some programs exit immediately on a second one. Returns
    /// those that refuse it.
    pub(crate) fn term_others(&mut self) -> Vec<Process> {
        let mut others = self.living();
        others.retain(|process| process.start.is_none_or(|start| self.signalled.insert((process.pid, start))));
        others.retain(|process| process.send(Signal::TERM) == Err(Errno::PERM));
        others
    }

    /// Sends KILL to all descendants. Repeat it until none is left, as processes may start others meanwhile.
    pub(crate) fn kill(&self) -> Round {
        let mut round = Round::default();
        for process in self.living() {
            match process.send(Signal::KILL) {
                Ok(()) => round.left += 1,
                Err(Errno::PERM) => round.refused.push(process),
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
        living(self.spared, || {
            if Path::new("/proc/thread-self/children").exists() {
                by_children()
            } else {
                by_parents(getpid(), &every_process())
            }
        })
    }
}

/// The kernel lists the children of a thread, if it was built with this option, as nearly all are.
fn by_children() -> Vec<Process> {
    let read = |pid, parent| Process::read(pid).unwrap_or_else(|| Process::unread(pid, parent));
    below(getpid(), |parent| children(parent).into_iter().map(|pid| read(pid, parent)).collect())
}

/// The processes of `all` that are descendants of `root`.
fn by_parents(root: Pid, all: &[Process]) -> Vec<Process> {
    below(root, |parent| all.iter().filter(|process| process.parent == parent.as_raw_pid()).copied().collect())
}

/// The descendants of `root`.
fn below(root: Pid, children: impl Fn(Pid) -> Vec<Process>) -> Vec<Process> {
    let (mut found, mut next) = (Vec::new(), vec![root]);
    let mut family = HashSet::from([root.as_raw_pid()]);
    while let Some(parent) = next.pop() {
        for process in children(parent) {
            // The process ID may be reused, and a snapshot have cycles. The parent of a descendant is a known descendant.
            if family.contains(&process.parent) && family.insert(process.pid.as_raw_pid()) {
                found.push(process);
                next.push(process.pid);
            }
        }
    }
    found
}

/// The processes that are alive, but for `spared`. A process whose parent exits during a scan may be on no list that the scan reads. So
/// that none is left is believed of a scan in which nobody has died.
fn living(spared: Option<Pid>, mut scan: impl FnMut() -> Vec<Process>) -> Vec<Process> {
    let mut dead = None;
    loop {
        let (gone, mut alive): (Vec<_>, Vec<_>) = scan().into_iter().partition(|process| process.is_dead());
        alive.retain(|process| Some(process.pid) != spared);
        let gone: HashSet<_> = gone.into_iter().map(|process| (process.pid, process.start)).collect();
        if !alive.is_empty() || dead.as_ref().is_some_and(|dead| gone.is_subset(dead)) {
            return alive;
        }
        dead = Some(gone);
    }
}

/// How often a process that must end is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// A process of another user, or one in the kernel, does not end.
const LONGEST_KILL: Duration = Duration::from_secs(2);

/// Ends the process group and the session that `leader` has led, which has ended: TERM, and KILL after the grace period. Returns how many are
/// left a while later. The kernel gives its number to no other process while one of these has it.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no keeper"))]
pub(crate) async fn end_group_of(leader: i32, grace: Duration) -> usize {
    let (begun, mut signalled) = (Instant::now(), HashSet::new());
    loop {
        let mut members: Vec<_> = every_number().into_iter().filter_map(Process::read).collect();
        members.retain(|process| !process.is_dead() && (process.group == leader || process.session == leader));
        let is_over = begun.elapsed() > grace + LONGEST_KILL;
        if members.is_empty() || is_over || members.iter().any(|process| process.pid.as_raw_pid() == leader) {
            return members.len();
        }
        for process in members {
            if begun.elapsed() >= grace {
                let _ = process.send(Signal::KILL);
            } else if signalled.insert((process.pid, process.start)) {
                let _ = process.send(Signal::TERM);
                // A stopped process handles no other signal.
                let _ = process.send(Signal::CONT);
            }
        }
        sleep(LOOK).await;
    }
}

/// What cannot be read is gone, or of another user. It may have been a child of this process.
fn every_process() -> Vec<Process> {
    let gone = |pid| Process { state: 'X', ..Process::unread(pid, getpid()) };
    every_number().into_iter().map(|pid| Process::read(pid).unwrap_or_else(|| gone(pid))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn process(number: i32, parent: i32) -> Process {
        Process { pid: pid(number), parent, group: number, session: number, state: 'S', start: Some(1) }
    }

    #[test]
    fn a_scan_finds_all_descendants_and_no_other_process() {
        let all = [process(2, 1), process(10, 5), process(3, 10), process(4, 3), process(5, 1), process(6, 2)];
        let mut found: Vec<_> = by_parents(pid(5), &all).into_iter().map(|process| process.pid.as_raw_pid()).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4, 10]);
    }

    #[test]
    fn a_process_whose_parent_exits_during_the_scan_is_found() {
        let dead = |number| Process { state: 'Z', ..process(number, 1) };
        // A child of 3 that a scan misses, because 3 exits after the scan has read the children of 1.
        let mut scans =
            [vec![dead(3), process(2, 1)], vec![dead(3), dead(4)], vec![dead(3), dead(4), process(9, 1)]].into_iter();
        let found = living(Some(pid(2)), || scans.next().unwrap());
        assert_eq!(found, [process(9, 1)]);
        assert_eq!(living(None, || vec![dead(3)]), []);
    }

    #[test]
    fn a_snapshot_with_a_cycle_is_scanned_once() {
        assert_eq!(by_parents(pid(5), &[process(6, 5), process(5, 6)]), [process(6, 5)]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn both_scans_find_the_same_processes() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let has = |found: Vec<Process>| found.iter().any(|process| process.pid.as_raw_pid() == number);
        assert!(has(by_children()));
        assert!(has(by_parents(getpid(), &every_process())));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
