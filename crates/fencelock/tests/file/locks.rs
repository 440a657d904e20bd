//! Lock files as seen from one process: the contract, and what becomes of it when the files are meddled with.

use crate::kit::*;
use fencelock::backends::{File, ManualClock};
use fencelock_core::{Acquire, Backend, Event, Eviction, Fault, Intent, Mode, Occupant, Release, Renew, Unknown};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn lock_file(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    scratch.path().join(format!("{name}.lock"))
}

#[test]
fn fences_grow_when_the_clock_is_set_back() {
    let scratch = Scratch::new();
    let open =
        |secs| File::open_with_clock(scratch.path(), Arc::new(ManualClock::at(Duration::from_secs(secs)))).unwrap();
    let (late, early) = (open(5000), open(10));
    let (held, first) = take(&late, "k");
    free(&late, &held);
    let (_, second) = take(&early, "k");
    assert_eq!(second.get(), first.get() + 1);
}

#[test]
fn fences_grow_over_a_damaged_record() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let path = lock_file(&scratch, "k");
    let (held, mut last) = take(&locks, "k");
    free(&locks, &held);
    let whole = fs::read(&path).unwrap();
    let zeros = vec![0; 100_000];
    for bytes in [&b""[..], b"garbage", b"\xff\xfe\n", b"{}\n", &whole[..whole.len() / 2], &zeros] {
        fs::write(&path, bytes).unwrap();
        let (held, fence) = take(&locks, "k");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        assert_eq!(
            now(locks.inspect(&held.key)).unwrap().unwrap().first().fence,
            Some(fence),
            "the record is whole again"
        );
        free(&locks, &held);
    }
}

#[test]
fn a_record_without_a_lock_is_no_hold() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = take(&locks, "k");
    let record = fs::read(lock_file(&scratch, "k")).unwrap();
    free(&locks, &held);
    // As a crashed holder leaves it.
    fs::write(lock_file(&scratch, "k"), record).unwrap();
    assert_eq!(now(locks.inspect(&held.key)).unwrap(), None);
    assert!(now(locks.list()).unwrap().is_empty());
    take(&locks, "k");
}

#[test]
fn an_inspection_never_makes_a_free_lock_seem_busy() {
    let scratch = Scratch::new();
    let (locks, done, inspections) = (scratch.locks(), AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let locks = scratch.locks();
                while !done.load(Ordering::Relaxed) {
                    now(locks.inspect(&key("k"))).unwrap();
                    inspections.fetch_add(1, Ordering::Relaxed);
                    // Without a sleep the scheduler may suspend this thread in the middle of an inspection for longer
                    // than the other waits for it.
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
        }
        // A thread that panics would leave the others running: check the answers afterwards.
        let mut answers = Vec::new();
        while answers.len() < 500 || inspections.load(Ordering::Relaxed) < 10_000 {
            let claim = claim("k", Intent::Try);
            answers.push(acquire(&locks, &claim));
            free(&locks, &claim);
        }
        done.store(true, Ordering::Relaxed);
        for answer in answers {
            fence(answer);
        }
    });
}

#[test]
fn a_lock_of_another_program_is_busy_and_foreign() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let other = fs::File::create(lock_file(&scratch, "k")).unwrap();
    other.try_lock().unwrap();
    assert!(matches!(busy_with(acquire(&locks, &claim("k", Intent::Try))), Occupant::Foreign(_)));
    let holding = now(locks.inspect(&key("k"))).unwrap().unwrap();
    assert!(matches!(holding.first().occupant, Occupant::Foreign(_)));
    assert_eq!(now(locks.list()).unwrap(), std::slice::from_ref(&holding));
    assert!(matches!(now(locks.evict(&holding)).unwrap(), Eviction::Refused(_)));
    other.unlock().unwrap();
    other.try_lock_shared().unwrap();
    let by = busy_with(acquire(&locks, &claim("k", Intent::Enqueue)));
    assert!(matches!(&by, Occupant::Foreign(text) if text.to_string().contains("shared")), "{by}");
    other.unlock().unwrap();
    take(&locks, "k");
}

#[test]
fn a_holder_whose_file_was_deleted_has_lost_the_lock() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (_ears, events) = listen(&locks);
    let (held, first) = take(&locks, "k");
    fs::remove_file(lock_file(&scratch, "k")).unwrap();
    assert_eq!(renew(&locks, &held), Renew::Absent);
    expect_change(&events, "k");
    assert_eq!(free(&locks, &held), Release::Absent);
    let (_, second) = take(&locks, "k");
    assert!(second > first, "{second} after {first}");
}

#[test]
fn a_holder_whose_file_was_replaced_learns_the_new_holder() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.locks(), scratch.locks());
    let (loser, _) = take(&a, "k");
    fs::remove_file(lock_file(&scratch, "k")).unwrap();
    let (winner, _) = take(&b, "k");
    let taken = Occupant::Holder(winner.holder.clone());
    assert_eq!(renew(&a, &loser), Renew::TakenBy(taken.clone().into()));
    assert_eq!(acquire(&a, &loser.with_intent(Intent::Poll)), Acquire::Gone);
    assert_eq!(free(&a, &loser), Release::TakenBy(taken.into()));
    assert_eq!(renew(&b, &winner), Renew::Renewed { waiters: 0 });
}

/// Inotify is of Linux.
#[cfg(target_os = "linux")]
#[test]
fn a_deleted_file_is_reported_to_its_holder_at_once() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (_ears, events) = listen(&locks);
    take(&locks, "k");
    fs::remove_file(lock_file(&scratch, "k")).unwrap();
    // The directory is not watched yet.
    while events.recv_timeout(TIMEOUT).expect("an event for all keys") != Event::Reset {}
    take(&locks, "other");
    fs::rename(lock_file(&scratch, "other"), scratch.path().join("elsewhere")).unwrap();
    expect_change(&events, "other");
    // A file does not name a key as long as this.
    let long = "k".repeat(300);
    take(&locks, &long);
    let name = |entry: fs::DirEntry| entry.path().to_string_lossy().contains('~').then(|| entry.path());
    let path = fs::read_dir(scratch.path()).unwrap().find_map(|entry| name(entry.unwrap())).unwrap();
    fs::remove_file(path).unwrap();
    while events.recv_timeout(TIMEOUT).expect("an event for all keys") != Event::Reset {}
}

#[test]
fn a_renewal_keeps_the_files_of_a_hold_young() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = take_in_mode(&locks, "k", Mode::Shared);
    for name in ["k.lock", "k.lock.0"] {
        let file = fs::File::options().write(true).open(scratch.path().join(name)).unwrap();
        let new = file.metadata().unwrap().modified().unwrap();
        let age = || file.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default().as_secs();
        for (minutes, expected) in [(59, 59..120), (61, 0..10)] {
            file.set_modified(new - Duration::from_secs(minutes * 60)).unwrap();
            assert_eq!(renew(&locks, &held), Renew::Renewed { waiters: 0 });
            assert!(expected.contains(&(age() / 60)), "{name}: {} s", age());
        }
    }
}

#[test]
fn a_deleted_file_is_reported_to_waiters() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.locks(), scratch.locks());
    let (_ears, events) = listen(&b);
    take(&a, "k");
    busy_with(acquire(&b, &claim("k", Intent::Enqueue)));
    fs::remove_file(lock_file(&scratch, "k")).unwrap();
    expect_change(&events, "k");
}

#[test]
fn a_directory_that_went_away_is_made_again_and_watched_again() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("deep/locks");
    let (a, b) = (File::open(&dir).unwrap(), File::open(&dir).unwrap());
    let (_ears, events) = listen(&b);
    for _ in 0..3 {
        let (held, _) = take(&a, "k");
        let waiter = claim("k", Intent::Enqueue);
        busy_with(acquire(&b, &waiter));
        free(&a, &held);
        expect_change(&events, "k");
        fs::remove_dir_all(scratch.path().join("deep")).unwrap();
        while events.recv_timeout(TIMEOUT).unwrap() != Event::Reset {}
    }
}

#[test]
fn only_the_first_claim_creates_a_missing_directory() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("deep/locks");
    let locks = File::open(&dir).unwrap();
    let claim_of_k = claim("k", Intent::Try);
    assert_eq!(now(locks.inspect(&claim_of_k.key)), Ok(None));
    assert_eq!(now(locks.list()), Ok(vec![]));
    assert_eq!(now(locks.watch(&claim_of_k.key)), Ok(()));
    assert_eq!(free(&locks, &claim_of_k), Release::Absent);
    let report = now(locks.diagnose());
    assert!(!report.findings.is_empty() && report.servers.is_empty());
    assert!(!scratch.path().join("deep").exists());
    take(&locks, "k");
    for created in ["deep", "deep/locks"] {
        assert_eq!(fs::metadata(scratch.path().join(created)).unwrap().permissions().mode() & 0o7777, 0o700);
    }
}

fn refusal(dir: &Path) -> Unknown {
    let unknown = File::open(dir).expect_err("it cannot be used");
    assert_eq!(unknown.nodes().len(), 1);
    assert!(unknown.nodes()[0].node.starts_with("file:/"), "{unknown}");
    unknown
}

#[test]
fn a_file_where_the_directory_should_be_is_named() {
    let scratch = Scratch::new();
    let path = scratch.path().join("file");
    fs::write(&path, "").unwrap();
    for dir in [path.clone(), path.join("below")] {
        let unknown = refusal(&dir);
        assert_eq!(unknown.nodes()[0].fault, Fault::Unopened);
        let text = unknown.to_string();
        assert!(text.contains("not a directory") && !text.contains("remove"), "{text}");
    }
}

#[test]
fn a_directory_that_cannot_be_created_says_so_in_the_words_of_the_system() {
    // Some users may write to /proc, where no user can create a directory: their first claim fails.
    let opened = File::open("/proc/self/locks").and_then(|locks| now(locks.acquire(&claim("k", Intent::Try))).answer);
    let unknown = opened.unwrap_err();
    assert!(unknown.to_string().contains("cannot create this directory"), "{unknown}");
}
