//! Writers that wait for a row of readers: the next free moment is theirs, and they keep nobody out for longer than they wait.

use crate::kit::*;
use fencelock::backends::{File, ManualClock};
use fencelock_core::{Acquire, Claim, FencingToken, Intent, Mode, Release, Renew};
use std::sync::Arc;
use std::time::Duration;

fn shared(locks: &File, name: &str) -> (Claim, FencingToken) {
    take_in_mode(locks, name, Mode::Shared)
}

fn reader(name: &str) -> Claim {
    claim(name, Intent::Try).with_mode(Mode::Shared)
}

fn at_time(scratch: &Scratch) -> (File, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1));
    (File::open_with_clock(scratch.path(), clock.clone()).unwrap(), clock)
}

#[test]
fn a_waiting_writer_keeps_new_readers_out_until_the_row_has_ended() {
    let scratch = Scratch::new();
    let (a, clock) = at_time(&scratch);
    let b = File::open_with_clock(scratch.path(), clock.clone()).unwrap();
    let (first, _) = shared(&a, "k");
    let writer = claim("k", Intent::Enqueue);
    assert!(is_busy(&b, &writer));
    let (second, _) = shared(&a, "k");
    free(&a, &second);
    clock.advance(Duration::from_millis(250));
    let Acquire::Busy(occupied) = acquire(&a, &reader("k")) else { panic!("a writer waits") };
    assert_eq!(occupied.holders.first().holder_id(), Some(first.holder.id));
    assert_eq!(renew(&a, &first), Renew::Renewed { waiters: 0 });
    free(&a, &first);
    let Acquire::Busy(occupied) = acquire(&a, &reader("k")) else { panic!("it is the turn of the writer") };
    let by = occupied.holders.to_string();
    assert!(by.contains("a writer that waits for its turn"), "{by}");
    fence(acquire(&b, &writer));
    free(&b, &writer);
    shared(&a, "k");
    shared(&a, "k");
}

#[test]
fn readers_that_waited_for_a_writer_come_in_before_the_next_writer_closes_the_row() {
    let scratch = Scratch::new();
    let (a, clock) = at_time(&scratch);
    let b = File::open_with_clock(scratch.path(), clock.clone()).unwrap();
    let (before, _) = shared(&a, "k");
    let [writer, next] = [(); 2].map(|()| claim("k", Intent::Enqueue));
    assert!(is_busy(&a, &writer) && is_busy(&b, &next));
    free(&a, &before);
    fence(acquire(&a, &writer));
    free(&a, &writer);
    shared(&a, "k");
    assert!(is_busy(&b, &next));
    clock.advance(Duration::from_millis(249));
    assert!(is_busy(&b, &next));
    shared(&a, "k");
    clock.advance(Duration::from_millis(1));
    assert!(is_busy(&a, &reader("k")));
}

#[test]
fn the_end_of_a_claim_of_a_writer_ends_its_mark() {
    let scratch = Scratch::new();
    let (locks, clock) = at_time(&scratch);
    let other = File::open_with_clock(scratch.path(), clock.clone()).unwrap();
    let (held, _) = shared(&locks, "k");
    let writer = claim("k", Intent::Enqueue);
    assert!(is_busy(&other, &writer));
    clock.advance(Duration::from_millis(300));
    assert!(is_busy(&locks, &reader("k")));
    // A client does so when its wait has ended.
    assert!(matches!(free(&other, &writer), Release::TakenBy(_)));
    shared(&locks, "k");
    free(&locks, &held);
}

#[test]
fn a_writer_that_only_tries_does_not_block_others() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    shared(&locks, "k");
    assert!(is_busy(&locks, &claim("k", Intent::Try)));
    shared(&locks, "k");
}
