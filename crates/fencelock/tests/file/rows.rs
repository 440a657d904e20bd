//! Shared locks and permits in lock files: between processes, and when holders are killed or their files are deleted.

use crate::kit::process::{self, Process};
use crate::kit::*;
use fencelock::backends::File;
use fencelock_core::{
    Acquire, Backend, BootClock, Claim, Clock, Downgrade, Eviction, FencingToken, HolderInfo, Holding, Intent, Key,
    Mode, Occupant, Release, Renew,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

fn shared(locks: &File, name: &str) -> (Claim, FencingToken) {
    take_in_mode(locks, name, Mode::Shared)
}

fn reader(name: &str) -> Claim {
    claim(name, Intent::Try).with_mode(Mode::Shared)
}

#[test]
fn readers_of_several_processes_hold_a_key_together_and_are_seen() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let mut others = [(); 2].map(|()| Process::start(scratch.path()));
    let mut fences: Vec<_> = others.iter_mut().map(|other| other.take_in_mode("share", "k")).collect();
    fences.push(shared(&locks, "k").1);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    let seen = seen(&locks, "k");
    assert_eq!(seen.holders.iter().map(|hold| hold.fence.unwrap()).collect::<Vec<_>>(), fences);
    for (hold, other) in seen.holders.iter().zip(&others) {
        let Occupant::Holder(holder) = &hold.occupant else { panic!("foreign: {seen:?}") };
        assert_eq!(holder.owner.process(), format!("box:{}", other.pid()));
        assert_eq!(hold.mode, Mode::Shared);
    }
    assert!(others[0].request("try k").starts_with("busy"));
    let listed = now(locks.list()).unwrap();
    let ids = |seen: &Holding| seen.holders.iter().map(HolderInfo::holder_id).collect::<Vec<_>>();
    assert_eq!((listed.len(), ids(&listed[0])), (1, ids(&seen)));
}

#[test]
fn readers_are_seen_although_the_record_of_the_key_is_lost() {
    for lost in ["", "{", "garbage\n"] {
        let scratch = Scratch::new();
        let locks = scratch.locks();
        let (_, fence) = shared(&locks, "k");
        fs::write(scratch.path().join("k.lock"), lost).unwrap();
        let other = scratch.locks();
        assert_eq!(seen(&other, "k").first().fence, Some(fence), "{lost:?}");
        assert_eq!(now(other.list()).unwrap().len(), 1, "{lost:?}");
    }
}

#[test]
fn what_is_in_the_place_of_a_slot_file_is_named_and_the_key_is_not_reported_as_free() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    fs::write(scratch.path().join("k.lock"), "").unwrap();
    fs::create_dir(scratch.path().join("k.lock.0")).unwrap();
    let claims = [reader("k"), claim("k", Intent::Try)].map(|claim| now(locks.acquire(&claim)).answer.unwrap_err());
    let looked = now(locks.inspect(&Key::new("k").unwrap())).unwrap_err();
    for refused in claims.into_iter().chain([looked]) {
        assert!(refused.is_unopened() && refused.to_string().contains(" k.lock.0: "), "{refused}");
    }
}

#[test]
fn an_eviction_of_a_row_is_refused_and_names_each_process() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let mut others = [(); 2].map(|()| Process::start(scratch.path()));
    for other in &mut others {
        other.take_in_mode("share", "k");
    }
    let Eviction::Refused(text) = now(locks.evict(&seen(&locks, "k"))).unwrap() else { panic!("not refused") };
    assert!(others.iter().all(|other| text.contains(&other.pid().to_string())), "{text}");
}

#[test]
fn a_row_with_a_reader_at_all_times_is_never_reported_free() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.locks(), scratch.locks());
    let done = AtomicBool::new(false);
    let (mut last, _) = shared(&a, "k");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                assert!(now(b.inspect(&key("k"))).unwrap().is_some(), "a reader held it");
                assert_eq!(now(b.list()).unwrap().len(), 1, "a reader held it");
                assert!(is_busy(&b, &claim("k", Intent::Try)));
            }
        });
        // The next reader enters before the last one leaves, so the slots are used in turns.
        for _ in 0..3000 {
            let (next, _) = shared(&a, "k");
            assert_eq!(free(&a, &last), Release::Released);
            last = next;
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_row_that_has_ended_uses_its_slot_files_again() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    for _ in 0..3 {
        let held = [(); 4].map(|()| shared(&locks, "k").0);
        for held in &held {
            free(&locks, held);
        }
        let (alone, _) = take(&locks, "k");
        free(&locks, &alone);
    }
    let mut names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["k.lock", "k.lock.0", "k.lock.1", "k.lock.2", "k.lock.3", "k.lock.row"]);
}

#[test]
fn a_reader_whose_slot_file_was_deleted_has_lost_the_lock() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = shared(&locks, "k");
    fs::remove_file(scratch.path().join("k.lock.0")).unwrap();
    assert_eq!(renew(&locks, &held), Renew::Absent);
    take(&locks, "k");
}

#[test]
fn a_reader_excludes_writers_until_it_detects_that_its_lock_file_was_deleted() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.locks(), scratch.locks());
    let (held, _) = shared(&a, "k");
    fs::remove_file(scratch.path().join("k.lock")).unwrap();
    assert!(is_busy(&b, &claim("k", Intent::Try)));
    assert_eq!(renew(&a, &held), Renew::Absent);
    take(&b, "k");
}

#[test]
fn a_program_that_locks_the_file_exclusively_keeps_readers_out() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = shared(&locks, "k");
    let program = fs::File::open(scratch.path().join("k.lock")).unwrap();
    let try_lock = || rustix::fs::flock(&program, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert!(try_lock().is_err(), "a reader holds it");
    free(&locks, &held);
    try_lock().unwrap();
    assert!(matches!(busy_with(acquire(&locks, &reader("k"))), Occupant::Foreign(_)));
}

#[test]
fn a_program_that_locks_the_file_shared_is_one_of_the_readers() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = take(&locks, "k");
    free(&locks, &held);
    let program = fs::File::open(scratch.path().join("k.lock")).unwrap();
    rustix::fs::flock(&program, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    shared(&locks, "k");
    assert_eq!(seen(&locks, "k").holders.count(), 1);
}

#[test]
fn a_program_that_locks_a_slot_file_stops_no_reader() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = shared(&locks, "k");
    let program = fs::File::create(scratch.path().join("k.lock.1")).unwrap();
    rustix::fs::flock(&program, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    shared(&locks, "k");
    free(&locks, &held);
    assert_eq!(seen(&locks, "k").holders.count(), 1);
}

#[test]
fn a_downgrade_is_reported_to_waiting_readers_of_other_processes() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (_listener, events) = listen(&locks);
    let mut other = Process::start(scratch.path());
    other.take("k");
    let waiter = claim("k", Intent::Enqueue).with_mode(Mode::Shared);
    assert!(is_busy(&locks, &waiter));
    assert!(other.request("downgrade k").starts_with("Downgraded"));
    expect_change(&events, "k");
    fence(acquire(&locks, &waiter));
}

#[test]
fn the_files_of_a_row_have_the_permissions_of_their_lock_file() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let locks = scratch.locks();
    shared(&locks, "k");
    Process::start_with_umask(scratch.path(), "077").take_in_mode("share", "k");
    for name in ["k.lock", "k.lock.row", "k.lock.0", "k.lock.1"] {
        assert_eq!(fs::metadata(scratch.path().join(name)).unwrap().mode() & 0o777, 0o666, "{name}");
    }
}

#[test]
fn a_writer_never_gets_the_key_while_another_one_is_downgraded() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.locks(), scratch.locks());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = None;
            for _ in 0..500 {
                let (held, fence) = process::wait(&a, "k");
                assert!(Some(fence) > last);
                let Downgrade::Downgraded { token } = downgrade(&a, &held) else { panic!("lost") };
                assert!(token > fence);
                last = Some(token);
                assert_eq!(free(&a, &held), Release::Released);
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            let claim = claim("k", Intent::Try);
            if let Acquire::Granted { .. } = acquire(&b, &claim) {
                assert_eq!(free(&b, &claim), Release::Released);
            }
        }
    });
}

#[test]
fn a_downgrade_survives_a_deleted_row_file() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (first, _) = shared(&locks, "k");
    free(&locks, &first);
    fs::remove_file(scratch.path().join("k.lock.row")).unwrap();
    let (held, _) = take(&locks, "k");
    assert!(matches!(downgrade(&locks, &held), Downgrade::Downgraded { .. }));
    shared(&locks, "k");
}

#[test]
fn a_long_key_is_listed_with_all_its_readers() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let name = "k".repeat(Key::MAX_BYTES);
    shared(&locks, &name);
    shared(&locks, &name);
    let listed = now(locks.list()).unwrap();
    assert_eq!((listed.len(), listed[0].key.as_str(), listed[0].holders.count()), (1, name.as_str(), 2));
}

#[test]
fn the_limit_of_a_damaged_lock_file_is_not_changed() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = take_in_mode(&locks, "k", Mode::permits(1, 3).unwrap());
    fs::write(scratch.path().join("k.lock"), "{\"slots\":1, damaged\n").unwrap();
    let refused = now(locks.resize(&held.key, 5)).unwrap_err();
    assert!(refused.to_string().contains("its record is damaged"), "{refused}");
    assert_eq!(seen(&locks, "k").first().mode, held.mode);
}

#[test]
fn a_number_of_slots_that_no_row_has_delays_nobody() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = take_in_mode(&locks, "k", Mode::Shared);
    let record = fs::read_to_string(scratch.path().join("k.lock")).unwrap();
    assert!(record.contains("\"slots\":1,"), "{record}");
    fs::write(scratch.path().join("k.lock"), record.replace("\"slots\":1,", "\"slots\":4294967295,")).unwrap();
    let began = BootClock.now();
    assert!(seen(&locks, "k").has(held.holder.id), "the slot files count");
    assert_eq!(now(locks.list()).unwrap().len(), 1);
    assert!(is_busy(&locks, &claim("k", Intent::Try)));
    shared(&locks, "k");
    assert_eq!(free(&locks, &held), Release::Released);
    let took = BootClock.now().since(began);
    assert!(took < TIMEOUT, "four billion slot files were looked for: {took:?}");
}
