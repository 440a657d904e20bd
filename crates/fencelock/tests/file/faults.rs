//! Directories that cannot serve: each says why, and whether trying again can help.

use crate::kit::process::Process;
use crate::kit::*;
use fencelock::backends::File;
use fencelock_core::{Backend, Fault, Intent, Occupant};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user without rights; any number that is not root's will do.
const SOMEBODY: u32 = 65_534;

/// Bypasses the harness, which captures the output of tests that pass.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// The answer of an unprivileged process to an order; by itself if this one is unprivileged. Says aloud if neither can
/// be had.
fn unprivileged(dir: &Path, order: &str) -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    match Process::start_as(dir, root.then_some(SOMEBODY)) {
        Ok(mut process) => Some(process.request(order)),
        Err(error) => {
            skipped(&format!("no process of user {SOMEBODY} can run this test binary: {error}"));
            None
        }
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_denied_for_good() {
    let scratch = Scratch::new();
    for mode in [0o555, 0o333, 0o000] {
        fs::set_permissions(scratch.path(), Permissions::from_mode(mode)).unwrap();
        let answer = unprivileged(scratch.path(), "open");
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o700)).unwrap();
        let Some(answer) = answer else { return };
        assert!(
            answer.starts_with("permanent=true file:/") && answer.contains("ermission denied"),
            "{mode:o}: {answer}"
        );
        assert!(answer.contains("give this user read and write access"), "{mode:o}: {answer}");
    }
}

#[test]
fn a_lock_file_that_may_not_be_written_is_denied_for_good() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
    for mode in [0o444, 0o000] {
        fs::write(scratch.path().join("k.lock"), "").unwrap();
        fs::set_permissions(scratch.path().join("k.lock"), Permissions::from_mode(mode)).unwrap();
        let Some(answer) = unprivileged(scratch.path(), "try k") else { return };
        assert!(answer.starts_with("permanent=true file:/") && answer.contains("k.lock"), "{mode:o}: {answer}");
    }
}

#[test]
fn users_of_one_sticky_directory_share_its_locks() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777)).unwrap();
    let locks = scratch.locks();
    let (held, _) = take(&locks, "k");
    let Some(answer) = unprivileged(scratch.path(), "try k") else { return };
    assert!(answer.starts_with("busy box:"), "{answer}");
    free(&locks, &held);
    let answer = unprivileged(scratch.path(), "try k").unwrap();
    assert!(answer.starts_with("granted"), "{answer}");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of this test");
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("a file of this test").permissions().mode() & 0o777
}

#[test]
fn a_user_who_may_not_write_to_the_directory_cannot_lock_its_files() {
    let scratch = Scratch::new();
    let file = scratch.path().join("k.lock");
    set_mode(scratch.path(), 0o755);
    let locks = scratch.locks();
    let (held, _) = take(&locks, "k");
    free(&locks, &held);
    assert_eq!(mode_of(&file), 0o600);
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can play another user");
    }
    let mut other = Command::new("flock");
    other.args(["-s", "-n"]).arg(&file).arg("true").uid(SOMEBODY).gid(SOMEBODY).current_dir("/");
    match other.output() {
        Ok(output) => assert!(!output.status.success(), "another user locked the file"),
        Err(error) => skipped(&format!("flock(1) cannot be run: {error}")),
    }
}

#[test]
fn a_lock_file_follows_the_umask_that_takes_reading_away() {
    let scratch = Scratch::new();
    set_mode(scratch.path(), 0o1777);
    for (umask, mode) in [("077", 0o600), ("027", 0o660), ("022", 0o666), ("000", 0o666)] {
        let mut process = Process::start_with_umask(scratch.path(), umask);
        process.take(umask);
        assert_eq!(mode_of(&scratch.path().join(format!("{umask}.lock"))), mode, "umask {umask}");
    }
}

#[test]
fn a_file_that_was_too_open_is_closed_even_while_it_is_locked() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let file = scratch.path().join("k.lock");
    fs::write(&file, "").unwrap();
    for exclusive in [false, true] {
        set_mode(&file, 0o644);
        let other = fs::File::open(&file).unwrap();
        // A process that another test starts at this moment may have a copy of the last one until it executes its program.
        if exclusive {
            other.lock().unwrap();
        } else {
            other.lock_shared().unwrap();
        }
        assert!(matches!(busy_with(acquire(&locks, &claim("k", Intent::Try))), Occupant::Foreign(_)));
        assert_eq!(mode_of(&file), 0o600, "exclusive: {exclusive}");
    }
}

#[test]
fn files_that_cannot_be_read_hide_no_others_from_a_list() {
    let scratch = Scratch::new();
    let locks = scratch.locks();
    let (held, _) = take(&locks, "k");
    fs::write(scratch.path().join("elsewhere"), "precious").unwrap();
    fs::hard_link(scratch.path().join("elsewhere"), scratch.path().join("linked.lock")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", scratch.path().join("zero.lock")).unwrap();
    fs::create_dir(scratch.path().join("dir.lock")).unwrap();
    let is_unread = |by: &Occupant| matches!(by, Occupant::Foreign(foreign) if foreign.is_unread());
    let (unread, listed): (Vec<_>, Vec<_>) =
        now(locks.list()).unwrap().into_iter().partition(|holding| is_unread(&holding.first().occupant));
    assert_eq!((unread.len(), &listed[0].key, listed.len()), (3, &held.key, 1));
    for (name, why) in [("linked", "2 names"), ("zero", "symbolic links"), ("dir", "not a regular file")] {
        let refused = now(locks.acquire(&claim(name, Intent::Try))).answer.unwrap_err();
        assert!(refused.is_permanent(), "no task waits for it: {refused}");
        let refused = refused.to_string();
        assert!(refused.contains(&format!("{name}.lock")) && refused.contains(why), "{refused}");
    }
    assert_eq!(fs::read_to_string(scratch.path().join("elsewhere")).unwrap(), "precious");
}

/// A small file system of its own, unmounted with this value.
struct Mount(PathBuf);

impl Mount {
    /// Says aloud if this user may not mount.
    fn new(scratch: &Scratch, options: &str) -> Option<Self> {
        let dir = scratch.path().join("mount");
        fs::create_dir(&dir).expect("a fresh directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&dir).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(dir)),
            other => {
                skipped(&format!("this user may not mount a file system: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        let unmounted = unmounted.is_ok_and(|status| status.success());
        assert!(unmounted || std::thread::panicking(), "{} stays mounted", self.0.display());
    }
}

#[test]
fn a_read_only_file_system_is_denied_for_good() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, "ro") else { return };
    for dir in [mount.0.clone(), mount.0.join("below")] {
        let unknown = File::open(dir).unwrap_err();
        assert!(unknown.is_permanent() && unknown.to_string().contains("read-only"), "{unknown}");
    }
}

#[test]
fn a_full_disk_fails_the_claim_and_keeps_no_lock() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, "size=64k") else { return };
    let locks = File::open(&mount.0).unwrap();
    let filler = mount.0.join("filler");
    // The write fails where the room ends; what fits stays.
    assert!(fs::write(&filler, vec![0; 1 << 20]).is_err());
    let claim = claim("k", Intent::Try);
    let unknown = now(locks.acquire(&claim)).answer.unwrap_err();
    assert_eq!(unknown.nodes()[0].fault, Fault::Full, "{unknown}");
    assert_eq!(now(locks.inspect(&claim.key)).unwrap(), None);
    // Emptied, not removed: a process that another test starts at this moment may hold the file open until it has begun.
    fs::write(&filler, "").unwrap();
    fence(acquire(&locks, &claim));
    free(&locks, &claim);
}
