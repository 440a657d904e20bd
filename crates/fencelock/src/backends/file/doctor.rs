use super::directory::{
    Directory, GROUP_WRITE, OTHERS_WRITE, STICKY, completion_file_name, file_name, is_used, other_default,
};
use super::inspect::Scan;
use super::permission::{SETGID, excess};
use super::watch::watched;
use super::{File, flock_guard};
use fencelock_core::{BoxFuture, Finding, Level, Trial};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

// Checks what the guarantees of a lock directory depend on.

pub(super) async fn findings(file: &File) -> Vec<Finding> {
    let directory = &file.directory;
    let mut findings = vec![owner(directory)];
    if findings[0].level < Level::Failure {
        findings.push(match directory.check_access() {
            Ok(()) if directory.is_missing() => Finding::fine("access", "this user can create it"),
            Ok(()) => Finding::fine("access", "this user can create, lock and list lock files"),
            Err(unknown) => Finding::failure("access", unknown.to_string(), ""),
        });
    }
    let advice = "name a directory that all of them see, as in file:/var/lock/NAME";
    findings.extend(other_default(directory.path()).map(|text| Finding::note("default", text, advice)));
    findings.extend(file_system(directory));
    // Skips the other checks, which would report the same error.
    if directory.is_missing() || findings.iter().any(|finding| finding.level == Level::Failure) {
        return findings;
    }
    findings.extend([exclusion(directory), wake_ups(directory)]);
    findings.push(match closed(directory) {
        Some(closed) => closed,
        None => lock_files(file).await,
    });
    findings.extend(exposed(directory));
    findings
}

async fn lock_files(file: &File) -> Finding {
    const SUBJECT: &str = "lock files";
    let scan = match Scan::of(file).await {
        Ok(scan) => scan,
        Err(unknown) => return Finding::failure(SUBJECT, unknown.to_string(), ""),
    };
    let (files, unread) = (scan.files, scan.unread.len() + scan.more_unread);
    if unread > 0 {
        let first = scan.unread.first().map(|(_, why)| why.to_string()).unwrap_or_default();
        let advice =
            "a lock file is a regular file with one name: remove links, directories and other things that are none";
        return Finding::failure(SUBJECT, format!("{unread} of {files} lock files cannot be read: {first}"), advice);
    }
    let text = format!("{files} lock files, {} of them held; they are never deleted", scan.held.len());
    if files < MANY {
        return Finding::fine(SUBJECT, text);
    }
    Finding::note(SUBJECT, text, "use fewer keys, or delete the directory while it is not in use")
}

/// Files that another user keeps to itself. One of them may be held.
fn closed(directory: &Directory) -> Option<Finding> {
    let is_closed = |path: &Path, _: &Metadata| {
        let access = rustix::fs::accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS);
        path.extension().is_some_and(|suffix| suffix == "lock") && access == Err(Errno::ACCESS)
    };
    let (name, meta, many) = files_that(directory, is_closed)?;
    let owner = format!(", user {}", meta.uid());
    let text = format!("this user may not use {many} lock files, and cannot lock their keys: {name}{owner}");
    let advice =
        "it may be held, so do not remove it: use another directory, or let its owner give this user access to it";
    Some(Finding::failure("lock files", text, advice))
}

/// With more files than this, a list takes a noticeable fraction of a second.
const MANY: usize = 100_000;

fn owner(directory: &Directory) -> Finding {
    const SUBJECT: &str = "directory";
    let path = directory.path().display();
    if directory.is_missing() {
        let advice = "the first lock creates it, accessible only to this user (mode 0700); if locks should exist, check the path";
        return Finding::note(SUBJECT, format!("{path} does not exist"), advice);
    }
    let meta = match fs::metadata(directory.path()) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => return Finding::failure(SUBJECT, format!("{path} is not a directory"), "use another directory"),
        Err(error) => return Finding::failure(SUBJECT, format!("{path}: {error}"), "use another directory"),
    };
    let (mode, user) = (meta.mode() & 0o7777, rustix::process::geteuid().as_raw());
    let text = format!("{path}, user {}, group {}, mode {mode:o}", meta.uid(), meta.gid());
    // The sticky bit does not restrict the owner of a directory.
    if meta.uid() != user && meta.uid() != 0 {
        let advice = "its owner may delete a lock file while it is held: use a directory of this user or of root";
        return Finding::warning(SUBJECT, text, advice);
    }
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        let advice =
            "other users may delete a lock file while it is held, and the lock is then lost: chmod +t, or go-w";
        return Finding::warning(SUBJECT, text, advice);
    }
    if mode & OTHERS_WRITE == GROUP_WRITE && mode & SETGID == 0 {
        let advice = "the group can use a lock file only if it is the file's group, too: chmod g+s";
        return Finding::note(SUBJECT, text, advice);
    }
    Finding::fine(SUBJECT, text)
}

/// Files that users without write permission to the directory can lock. The next lock of a file of this user corrects it.
fn exposed(directory: &Directory) -> Option<Finding> {
    let is_exposed = |path: &Path, meta: &Metadata| {
        path.file_name().is_some_and(|name| is_used(&name.to_string_lossy())) && excess(path, meta) != 0
    };
    let (name, meta, many) = files_that(directory, is_exposed)?;
    let text = format!(
        "{many} lock files can be locked by users who may not write to the directory: {name}, user {}, mode {:o}",
        meta.uid(),
        meta.mode() & 0o777
    );
    Some(Finding::warning("permissions", text, "chmod go= them, or let their owner lock them once"))
}

/// Tests whether two open file descriptions exclude each other. It locks the directory itself, so it creates no file.
fn exclusion(directory: &Directory) -> Finding {
    let unclear =
        |error: io::Error| Finding::note("exclusion", format!("the test on the directory failed: {error}"), "");
    let open = || fs::File::open(directory.path());
    let (first, second) = match open().and_then(|first| Ok((first, open()?))) {
        Ok(both) => both,
        Err(error) => return unclear(error),
    };
    match (flock_guard::try_exclusive(&first), flock_guard::try_exclusive(&second)) {
        // If the first lock is refused, another check is running, which also shows that locks exclude each other.
        (Err(error), _) | (_, Err(error)) => unclear(error),
        (Ok(true), Ok(true)) => {
            let text = "two exclusive locks on one file were granted at once";
            Finding::failure("exclusion", text, "use a directory on a local file system")
        }
        _ => Finding::fine("exclusion", "a second lock on a locked file is refused"),
    }
}

fn wake_ups(directory: &Directory) -> Finding {
    if let Err(error) = watched(directory) {
        let text = format!("none from other processes ({error}): waiters poll four times a second");
        return Finding::note("wake-ups", text, "on Linux, raise fs.inotify.max_user_instances");
    }
    Finding::fine("wake-ups", "the kernel notifies waiters of other processes when a lock is released")
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn file_system(_: &Directory) -> Option<Finding> {
    None
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn file_system(directory: &Directory) -> Option<Finding> {
    // Its type differs between architectures; the numbers have 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::unnecessary_cast, reason = "see above")]
    let magic = rustix::fs::statfs(directory.existing()).ok()?.f_type as u32;
    let Some((_, name)) = REMOTE.iter().find(|(number, _)| *number == magic) else {
        return Some(Finding::fine("file system", format!("of type {magic:#x}, which is not known to be remote")));
    };
    let text = format!("{name}: locks may not exclude other machines, and may hang while the server is away");
    let advice = "use a directory on a local file system; between machines use redis:// or redlock://";
    Some(Finding::warning("file system", text, advice))
}

/// Magic numbers of statfs(2): of remote file systems, and of those of programs that implement locks themselves.
#[cfg(any(target_os = "linux", target_os = "android"))]
const REMOTE: [(u32, &str); 10] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x0bd0_0bd0, "lustre"),
    (0x786f_4256, "vboxsf"),
];

// Tries what a lock does in this directory, and removes its files.

/// The beginning of the keys of trials. Names of files keep these characters.
const OWN: &str = "fencelock-doctor-";

/// A trial takes milliseconds. Older files are from one that was killed.
const LONGEST: Duration = Duration::from_secs(5);

/// No other program uses the name of the key, so its files can be deleted. A name that a user gives is not needed here: whoever
/// may create files may use any key.
pub(super) async fn run(file: &File) -> Finding {
    if file.directory.is_missing() {
        let advice = "run doctor again after the first lock";
        return Finding::not_tried("the directory does not exist, and doctor does not create it", advice);
    }
    let Some(trial) = Trial::new(file, getrandom::fill, None, "") else { return Trial::impossible() };
    let age = |meta: &Metadata| meta.modified().ok().and_then(|at| at.elapsed().ok());
    let is_old = |name: &str, meta: &Metadata| name.starts_with(OWN) && age(meta).is_some_and(|age| age > LONGEST);
    remove_where(&file.directory, is_old);
    let own = [file_name(trial.key()), completion_file_name(trial.key())];
    let is_own = |name: &str, _: &Metadata| own.iter().any(|own| name.starts_with(own));
    let clean = || -> BoxFuture<'_, bool> { Box::pin(async { remove_where(&file.directory, is_own) }) };
    // The cause says what to do.
    trial.run(&clean).await.finding(|_| "")
}

/// Whether all of them are gone. Files of another user may stay.
fn remove_where(directory: &Directory, is_removed: impl Fn(&str, &Metadata) -> bool) -> bool {
    let Some(files) = files(directory) else { return false };
    let removed =
        files.filter(|(path, meta)| is_removed(&path.file_name().unwrap_or_default().to_string_lossy(), meta));
    removed.fold(true, |all, (path, _)| fs::remove_file(path).is_ok() && all)
}

/// The files of this directory that are so: the name of the first, what it is, and their number.
fn files_that(directory: &Directory, are: impl Fn(&Path, &Metadata) -> bool) -> Option<(String, Metadata, usize)> {
    let mut found = files(directory)?.filter(|(path, meta)| are(path, meta));
    let (first, meta) = found.next()?;
    Some((first.file_name()?.display().to_string(), meta, 1 + found.count()))
}

fn files(directory: &Directory) -> Option<impl Iterator<Item = (PathBuf, Metadata)> + use<>> {
    let entries = fs::read_dir(directory.path()).ok()?.flatten();
    let files = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    Some(files.filter(|(_, meta)| meta.is_file()))
}

#[cfg(test)]
mod diagnose_tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use futures_util::FutureExt;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_directory_has_no_warning() {
        let scratch = Scratch::new();
        let path = scratch.path().join("locks");
        let file = File::open(&path).unwrap();
        file.directory.create().unwrap();
        let findings = findings(&file).now_or_never().unwrap();
        assert!(findings.len() >= 5, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.level <= Level::Note), "{findings:?}");
    }

    #[test]
    fn a_directory_where_all_users_may_delete_files_is_a_warning() {
        let scratch = Scratch::new();
        let file = File::open(scratch.path()).unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
        let findings = findings(&file).now_or_never().unwrap();
        let directory = findings.iter().find(|finding| finding.subject == "directory").unwrap();
        assert_eq!(directory.level, Level::Warning);
    }

    fn level_of(file: &File, subject: &str) -> Option<Level> {
        findings(file)
            .now_or_never()
            .unwrap()
            .iter()
            .find(|finding| finding.subject == subject)
            .map(|finding| finding.level)
    }

    #[test]
    fn the_documented_directory_for_several_users_has_no_warning() {
        let scratch = Scratch::new();
        let file = File::open(scratch.path()).unwrap();
        for (mode, level) in [(0o3770, Level::Fine), (0o1770, Level::Note), (0o2770, Level::Warning)] {
            fs::set_permissions(scratch.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(level_of(&file, "directory"), Some(level), "{mode:o}");
        }
    }

    #[test]
    fn a_sticky_directory_of_another_user_is_a_warning() {
        let scratch = Scratch::new();
        let file = File::open(scratch.path()).unwrap();
        if std::os::unix::fs::chown(scratch.path(), Some(12_345), None).is_err() {
            // Only root can change the owner of a directory, and a directory of root is trusted.
            return;
        }
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(level_of(&file, "directory"), Some(Level::Warning));
    }

    #[test]
    fn files_with_open_permissions_are_a_warning_until_their_owner_has_locked_them() {
        let scratch = Scratch::new();
        let file = File::open(scratch.path()).unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        let path = scratch.path().join("k.lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(level_of(&file, "permissions"), Some(Level::Warning));
        drop(flock_guard::FlockGuard::take(&path).unwrap().unwrap());
        assert_eq!(level_of(&file, "permissions"), None);
    }

    #[test]
    fn a_link_among_the_lock_files_is_a_failure() {
        let scratch = Scratch::new();
        let file = File::open(scratch.path()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", scratch.path().join("k.lock")).unwrap();
        assert_eq!(level_of(&file, "lock files"), Some(Level::Failure));
    }

    #[test]
    fn the_documented_directory_for_a_group_has_no_warning() {
        let page = include_str!("../../../../../docs/en/file.md");
        let (_, after) = page.split_once("install -d -m ").unwrap();
        let mode = u32::from_str_radix(after.split(' ').next().unwrap(), 8).unwrap();
        assert_ne!(mode & OTHERS_WRITE, 0, "several users write there");
        let scratch = Scratch::new();
        let file = File::open(scratch.path()).unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(mode)).unwrap();
        let findings = findings(&file).now_or_never().unwrap();
        assert!(findings.iter().all(|finding| finding.level <= Level::Note), "{findings:?}");
    }

    #[test]
    fn a_missing_directory_is_a_note_and_is_not_created() {
        let scratch = Scratch::new();
        let path = scratch.path().join("locks");
        let file = File::open(&path).unwrap();
        let seen = |file: &File| {
            findings(file).now_or_never().unwrap().iter().map(|found| (found.subject, found.level)).collect::<Vec<_>>()
        };
        let levels = seen(&file);
        assert_eq!(levels[..2], [("directory", Level::Note), ("access", Level::Fine)], "{levels:?}");
        assert!(levels[2..].iter().all(|(_, level)| *level == Level::Fine) && !path.exists(), "{levels:?}");
        fs::write(&path, "").unwrap();
        assert_eq!(seen(&file)[0], ("directory", Level::Failure));
    }
}
