//! A forked child has a copy of everything, and holds nothing.

use crate::program::{self, url};
use fencelock::{Client, Error, LossReason, blocking};
use fencelock_testkit::{RedisServer, redis_or_skip};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_forked_child_holds_nothing_and_releases_nothing", || leaves_the_lock("forks")),
    ("a_forked_child_of_a_blocking_program_holds_nothing_and_releases_nothing", || leaves_the_lock("forks_blocking")),
    ("a_forked_child_waits_for_no_thread_of_its_parent", || {
        let Some(server) = redis_or_skip() else { return };
        assert!(program::run("forks_while_busy", &server.url()).success());
    }),
];

pub(crate) const PROGRAMS: &[(&str, fn())] =
    &[("forks", forks), ("forks_blocking", forks_blocking), ("forks_while_busy", forks_while_busy)];

fn leaves_the_lock(program: &str) {
    let Some(server) = redis_or_skip() else { return };
    let mut parent = program::start(program, &server.url());
    program::wait_for("held", &mut parent);
    let before = (value(&server), scripts(&server));
    parent.send("");
    program::wait_for("forked", &mut parent);
    assert_eq!((value(&server), scripts(&server)), before, "the children have sent nothing");
    assert!(parent.end().success(), "the parent goes on as if nothing had happened");
    assert_eq!(value(&server), None);
}

fn value(server: &RedisServer) -> Option<String> {
    server.command(&["GET", "k"]).text().map(str::to_owned)
}

/// How many scripts the server has run. A hold is renewed once in its first ten seconds.
fn scripts(server: &RedisServer) -> usize {
    let counters = server.command(&["INFO", "commandstats"]);
    let info = counters.text().unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// How a child begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    /// It ends like a program that calls `exit`.
    Exits,
    /// It runs nothing at its end.
    EndsAtOnce,
    /// It is created by a system call, without the C library and its handlers. It runs nothing at its end.
    #[cfg(target_os = "linux")]
    IsCloned,
}

const CHILDREN: &[Child] = &[
    Child::Exits,
    Child::EndsAtOnce,
    #[cfg(target_os = "linux")]
    Child::IsCloned,
];

impl Child {
    #[expect(unsafe_code, reason = "there is no other way to fork")]
    fn create(self) -> i32 {
        match self {
            // SAFETY: whether the child gets by without the other threads is what is tested.
            Self::Exits | Self::EndsAtOnce => unsafe { libc::fork() },
            // SAFETY: the same. Without flags and a stack of its own, this is a fork.
            #[cfg(target_os = "linux")]
            Self::IsCloned => {
                i32::try_from(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }).unwrap()
            }
        }
    }
}

/// Lets a child do something, and says whether that went well.
#[expect(unsafe_code, reason = "there is no other way to end at once")]
fn in_a_child(child: Child, work: impl FnOnce() -> bool) -> bool {
    let pid = child.create();
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        let code = i32::from(!work());
        if child == Child::Exits {
            std::process::exit(code);
        }
        // SAFETY: it ends the process.
        unsafe { libc::_exit(code) };
    }
    ended_well(pid)
}

/// A child that hangs is killed, and did not do well. The bound is for machines that are slow.
fn ended_well(pid: i32) -> bool {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let pid = Pid::from_raw(pid).unwrap();
    for _ in 0..4000 {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).unwrap() {
            return status.exit_status() == Some(0);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(pid, Signal::KILL).unwrap();
    waitpid(Some(pid), WaitOptions::empty()).unwrap();
    false
}

#[tokio::main(flavor = "current_thread")]
async fn forks() {
    let mut client = Some(Client::connect(&url()).await.unwrap());
    let mut guard = Some(client.as_ref().unwrap().lock("k").ttl(Duration::from_secs(300)).await.unwrap());
    let held = guard.as_ref().unwrap().held();
    let pending = FirstRenewal::of(held.remaining());
    while pending.is_awaited(held.remaining()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    program::say_and_wait("held");
    for &child in CHILDREN {
        assert!(in_a_child(child, || {
            let guard = guard.take().unwrap();
            let lost = matches!(guard.check(), Err(Error::Lost { reason: LossReason::Forked, .. }));
            let nothing = !guard.is_held() && !held.is_held() && guard.remaining().is_zero() && lost;
            drop((guard, client.take()));
            nothing
        }));
        assert!(in_a_child(child, || {
            let released = poll_once(guard.take().unwrap().release());
            matches!(released, Some(Err(Error::Lost { reason: LossReason::Forked, .. })))
        }));
        assert!(in_a_child(child, || {
            let reads = poll_once(guard.take().unwrap().downgrade());
            matches!(reads, Some(Err(Error::Lost { reason: LossReason::Forked, .. })))
        }));
        assert!(in_a_child(child, || poll_once(held.lost()) == Some(LossReason::Forked)));
        assert!(in_a_child(child, || {
            let refused = poll_once(client.take().unwrap().lock("other").acquire());
            matches!(refused, Some(Err(Error::Config(_))))
        }));
    }
    program::say_and_wait("forked");
    let guard = guard.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    client.unwrap().close(Duration::from_secs(20)).await.unwrap();
}

/// The renewal that moves the end of a lease soon after the claim; the next one follows after a third of the TTL.
struct FirstRenewal {
    begun: Instant,
    left: Duration,
}

impl FirstRenewal {
    fn of(left: Duration) -> Self {
        Self { begun: Instant::now(), left }
    }

    /// For at most 20 s: it may have been over before.
    fn is_awaited(&self, left: Duration) -> bool {
        let passed = self.begun.elapsed();
        left + passed < self.left + Duration::from_millis(10) && passed < Duration::from_secs(20)
    }
}

fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

fn forks_blocking() {
    let client = blocking::Client::connect(&url()).unwrap();
    let mut guard = Some(client.lock("k").ttl(Duration::from_secs(300)).acquire().unwrap());
    let held = guard.as_ref().unwrap().held();
    let pending = FirstRenewal::of(held.remaining());
    while pending.is_awaited(held.remaining()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    program::say_and_wait("held");
    let mut client = Some(client);
    // A copy of the memory of several threads needs the handlers of the C library.
    for child in [Child::EndsAtOnce, Child::Exits] {
        assert!(in_a_child(child, || {
            let nothing = !guard.as_ref().unwrap().is_held();
            drop((guard.take(), client.take()));
            nothing
        }));
        assert!(in_a_child(child, || {
            let guard = guard.take().unwrap();
            let reported = guard.lost_within(Duration::from_secs(60)) == Some(LossReason::Forked)
                && guard.lost() == LossReason::Forked
                && held.lost_within(Duration::from_secs(60)) == Some(LossReason::Forked);
            let released = guard.release();
            reported && matches!(released, Err(Error::Lost { reason: LossReason::Forked, .. }))
        }));
        assert!(in_a_child(child, || {
            let reads = guard.take().unwrap().downgrade();
            matches!(reads, Err(Error::Lost { reason: LossReason::Forked, .. }))
        }));
        assert!(in_a_child(child, || {
            let client = client.take().unwrap();
            matches!(client.lock("other").acquire(), Err(Error::Config(_))) && client.inspect("k").is_err()
        }));
    }
    program::say_and_wait("forked");
    let guard = guard.unwrap();
    assert!(guard.is_held());
    guard.release().unwrap();
}

/// While other threads take, renew and drop locks, so that they often have a mutex of the client.
fn forks_while_busy() {
    let client = blocking::Client::connect(&url()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (client, over) = (client.clone(), &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let guard = client.lock(format!("k{}", thread % 2)).acquire().unwrap();
                    for _ in 0..100 {
                        assert!(guard.is_held());
                    }
                    drop(guard);
                }
            });
        }
        let mut well = true;
        for time in 0..200 {
            let guard = client.lock("own").acquire().unwrap();
            let mut taken = Some((guard, client.clone()));
            well &= in_a_child(if time % 2 == 0 { Child::EndsAtOnce } else { Child::Exits }, || {
                let (guard, client) = taken.take().unwrap();
                let nothing = !guard.is_held() && guard.remaining().is_zero();
                drop((guard, client));
                nothing
            });
            let (guard, _) = taken.unwrap();
            well &= guard.is_held();
            guard.release().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert!(well, "a child hung, or had a lock");
    });
}
