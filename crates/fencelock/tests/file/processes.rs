//! Lock files between processes, and what the kernel does when one of them ends.

use crate::kit::process::{Process, wait};
use crate::kit::*;
use fencelock_core::{Backend, Eviction, FencingToken, Intent, Mode, Occupant};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn another_process_sees_the_holder_and_the_process_to_end() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let mut other = Process::start(scratch.path());
    let fence = other.take("k");
    let holding = now(locks.inspect(&key("k"))).unwrap().unwrap();
    assert_eq!(holding.first().fence, Some(fence));
    assert!(holding.first().held_for.unwrap() < TIMEOUT);
    let Occupant::Holder(holder) = &holding.first().occupant else { panic!("foreign: {holding:?}") };
    assert_eq!(holder.owner.process(), format!("box:{}", other.pid()));
    let Eviction::Refused(text) = now(locks.evict(&holding)).unwrap() else { panic!("not refused") };
    assert!(text.contains(&format!("process {}", other.pid())), "{text}");
}

#[test]
fn the_death_of_a_holder_is_reported_to_waiters_of_each_mode() {
    for (order, mode) in [("try", Mode::Exclusive), ("share", Mode::Exclusive), ("permits 3 3", permits(2, 3))] {
        let scratch = Scratch::new();
        let locks = scratch.locks();
        let (_listener, events) = listen(&locks);
        for _ in 0..5 {
            let mut other = Process::start(scratch.path());
            other.take_in_mode(order, "k");
            let waiter = claim("k", Intent::Enqueue).with_mode(mode);
            assert!(is_busy(&locks, &waiter));
            other.kill();
            while is_busy(&locks, &waiter) {
                expect_change(&events, "k");
            }
            free(&locks, &waiter);
        }
    }
}

#[test]
fn a_release_is_reported_to_waiters_in_other_processes() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (_ears, events) = listen(&locks);
    let mut other = Process::start(scratch.path());
    other.take("k");
    let waiter = claim("k", Intent::Enqueue);
    busy_with(acquire(&locks, &waiter));
    other.request("free k");
    expect_change(&events, "k");
    fence(acquire(&locks, &waiter));
}

#[test]
fn an_executed_program_does_not_keep_the_lock_of_its_dead_parent() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let mut other = Process::start(scratch.path());
    other.take("k");
    let sleeper = other.request("sleeper").parse().unwrap();
    other.kill();
    let answer = acquire(&locks, &claim("k", Intent::Try));
    // It must have been alive all the while, or nothing was shown; and it must not stay.
    kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).expect("the executed program still ran");
    fence(answer);
}

#[test]
fn the_watching_thread_ends_with_its_locks() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    take(&locks, "k");
    let mut other = Process::start(scratch.path());
    assert_eq!(other.request("watchers k"), "began true, ended true");
}

#[test]
fn every_waiter_is_served_although_each_dies_with_the_lock() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let mut first = Process::start(scratch.path());
    let mut fences = vec![first.take("k")];
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let mut other = Process::start(scratch.path());
            other.order("wait k");
            std::thread::spawn(move || {
                let answer = other.answer().unwrap();
                other.kill();
                answer.strip_prefix("granted ").unwrap().parse::<FencingToken>().unwrap()
            })
        })
        .collect();
    first.kill();
    fences.extend(waiting.into_iter().map(|waiting| waiting.join().unwrap()));
    fences[1..].sort();
    fences.push(wait(&locks, "k").1);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[test]
fn a_killed_reader_frees_its_share_only() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let [mut a, mut b, mut c] = [(); 3].map(|()| Process::start(scratch.path()));
    let fence_of_a = a.take_in_mode("share", "k");
    b.take_in_mode("share", "k");
    let fence_of_c = c.take_in_mode("share", "k");
    b.kill();
    let left: Vec<_> = seen(&locks, "k").holders.iter().map(|hold| hold.fence.unwrap()).collect();
    assert_eq!(left, [fence_of_a, fence_of_c]);
    let writer = claim("k", Intent::Try);
    assert!(is_busy(&locks, &writer));
    a.kill();
    assert!(is_busy(&locks, &writer));
    c.kill();
    assert_eq!(now(locks.inspect(&key("k"))).unwrap(), None);
    assert!(fence(acquire(&locks, &writer)) > fence_of_c);
}
