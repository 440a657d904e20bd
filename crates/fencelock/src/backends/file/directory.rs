//! The directory of the lock files, and the texts of its errors.

use super::scheme::url_of;
use fencelock_core::{Fault, Key, Unknown};
use hmac_sha256::Hash;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::fmt::Write;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{fs, io};

/// New directories are private to the user: a user who may write here can delete a lock file while it is held.
const PRIVATE: u32 = 0o700;

/// The permission of other users to write, and the sticky bit, which prevents them from deleting files of other owners.
pub(super) const GROUP_WRITE: u32 = 0o020;
pub(super) const OTHERS_WRITE: u32 = 0o022;
pub(super) const STICKY: u32 = 0o1000;

const NO_LOCK_FILE: &str = "a lock file is a regular file with one name: remove the link, or what is in its place";

/// A directory, which may be missing: only a claim creates it.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory of this path, unchecked.
    pub(super) fn at(path: PathBuf) -> Result<Self, Unknown> {
        // A relative path would refer to another directory after a change of the current directory.
        match std::path::absolute(&path) {
            Ok(path) => Ok(Self { path }),
            Err(error) => Err(Self { path }.unknown("cannot resolve this path", &error)),
        }
    }

    /// The directory of this path, if this user can use or create it.
    pub(super) fn open(path: PathBuf) -> Result<Self, Unknown> {
        let directory = Self::at(path)?;
        directory.check_access()?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The URL of this directory.
    pub(super) fn name(&self) -> String {
        url_of(&self.path)
    }

    pub(super) fn file_of(&self, key: &Key) -> PathBuf {
        self.path.join(file_name(key))
    }

    pub(super) fn completion_file_of(&self, key: &Key) -> PathBuf {
        self.path.join(completion_file_name(key))
    }

    /// A dangling link is not missing: no directory can be created at its path.
    pub(super) fn is_missing(&self) -> bool {
        fs::symlink_metadata(&self.path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// The directory, or its nearest existing parent.
    pub(super) fn existing(&self) -> &Path {
        self.path.ancestors().find(|path| fs::symlink_metadata(path).is_ok()).unwrap_or(&self.path)
    }

    /// Creates the directory and its parents, if missing.
    pub(super) fn create(&self) -> Result<(), Unknown> {
        if fs::metadata(&self.path).is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        let created = DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.path);
        created.map_err(|error| self.unknown("cannot create this directory", &error))
    }

    /// Queries the kernel for the permissions; for a missing directory, for the permission to create it. An attempt to write
    /// would leave a file.
    pub(super) fn check_access(&self) -> Result<(), Unknown> {
        let allowed = |path: &Path, access| rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS);
        if self.is_missing() {
            return allowed(self.existing(), Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|error| self.unknown("cannot create this directory", &error.into()));
        }
        let meta = fs::metadata(&self.path).map_err(|error| self.unknown("cannot use this directory", &error))?;
        if !meta.is_dir() {
            return Err(self.unknown("cannot use this directory", &Errno::NOTDIR.into()));
        }
        allowed(&self.path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| self.unknown("cannot read and write this directory", &error.into()))?;
        fs::read_dir(&self.path).map_err(|error| self.unknown("cannot read this directory", &error))?;
        Ok(())
    }

    /// The error of the operating system, and the remedy.
    pub(super) fn unknown(&self, what: &str, error: &io::Error) -> Unknown {
        let (fault, advice) = match error.kind() {
            ErrorKind::PermissionDenied => {
                (Fault::Unopened, "give this user read and write access to it and its files, or use another directory")
            }
            ErrorKind::ReadOnlyFilesystem => {
                (Fault::Unopened, "the file system is read-only: use a writable directory")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                (Fault::Full, "free some space; a lock needs one block")
            }
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                (Fault::Unopened, "the path, or a part of it, is not a directory: use another directory")
            }
            // Another program has created the path, so a later attempt would fail too.
            ErrorKind::InvalidInput | ErrorKind::IsADirectory => (Fault::Unopened, NO_LOCK_FILE),
            _ if is(error, Errno::LOOP) => (Fault::Unopened, NO_LOCK_FILE),
            _ if is(error, Errno::MFILE) => {
                (Fault::Other, "this process may open no more files: raise its limit (ulimit -n)")
            }
            _ if is(error, Errno::NFILE) => {
                (Fault::Other, "this machine may open no more files: end some programs, or raise fs.file-max")
            }
            ErrorKind::TimedOut => (Fault::Timeout, "the file server does not answer"),
            ErrorKind::StaleNetworkFileHandle | ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
                (Fault::Unreachable, "the file server is not reachable")
            }
            _ => (Fault::Other, "use another directory"),
        };
        Unknown::new(self.name(), fault, format!("{what}: {error}; {advice}"))
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Where every user may create a directory, on most systems that have it.
const COMMON: &str = "/run/lock";

/// `fencelock-<uid>` in `/run/lock`, or in `/tmp` if that does not exist.
///
/// The directory must be the same for the shells, cron jobs and services of a user, which otherwise would not exclude each
/// other. So it depends on no environment variable: `XDG_RUNTIME_DIR` exists in a login session and not in a cron job, and
/// is removed with the last session; `TMPDIR` may have any value.
pub(super) fn default_path() -> PathBuf {
    if let Some(why) = fallback(Path::new(COMMON)) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::warn!("{why}; name a directory that all of them see, as in file:/var/lock/NAME"));
    }
    of_user(if is_everybodys(Path::new(COMMON)) { COMMON } else { "/tmp" })
}

/// Why other processes of this user may use another default directory: a system of Linux that has `/run/lock` shows it to most of them.
fn fallback(common: &Path) -> Option<String> {
    let is_missing = cfg!(target_os = "linux") && !common.exists();
    let (common, chosen) = (common.display(), of_user("/tmp"));
    let why = format!(
        "{common} does not exist here, so locks are in {}; processes that see {common} have theirs there, and do not exclude these",
        chosen.display()
    );
    is_missing.then_some(why)
}

fn is_everybodys(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|meta| meta.is_dir() && meta.mode() & STICKY != 0 && meta.mode() & 0o002 != 0)
}

fn of_user(parent: &str) -> PathBuf {
    Path::new(parent).join(format!("fencelock-{}", rustix::process::geteuid().as_raw()))
}

/// If `directory` is the default directory: why some processes may have another one.
pub(super) fn other_default(directory: &Path) -> Option<String> {
    let (usual, other) = (of_user(COMMON), of_user("/tmp"));
    if directory == other {
        return fallback(Path::new(COMMON));
    }
    // If it is not of this user, it has no locks of its processes.
    let is_there = directory == usual && private_dir_to_inspect(other.clone()).is_ok() && other.exists();
    let why = format!("{} exists, too: processes that do not see {COMMON} have their locks there", other.display());
    is_there.then_some(why)
}

/// The same, without creating it.
pub(super) fn private_dir_to_inspect(path: PathBuf) -> Result<PathBuf, Unknown> {
    let directory = Directory { path };
    if directory.is_missing() { Ok(directory.path) } else { check_private(directory) }
}

/// Creates a directory in a world-writable place, and rejects it unless it is private to this user.
///
/// The first claim must not create it: another user may put a link there after the check.
pub(super) fn private_dir(path: PathBuf) -> Result<PathBuf, Unknown> {
    let directory = Directory { path };
    match DirBuilder::new().mode(PRIVATE).create(&directory.path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(directory.unknown("cannot create the default directory for locks", &error));
        }
        _ => {}
    }
    check_private(directory)
}

fn check_private(directory: Directory) -> Result<PathBuf, Unknown> {
    let meta = fs::symlink_metadata(&directory.path)
        .map_err(|error| directory.unknown("cannot check the default directory for locks", &error))?;
    let uid = rustix::process::geteuid().as_raw();
    let (trouble, remedy) = if meta.is_symlink() {
        ("it is a symbolic link, whose target another user may change".to_owned(), "remove the link")
    } else if !meta.is_dir() {
        ("it is not a directory".to_owned(), "find out what made it, and remove it")
    } else if meta.uid() != uid {
        let whose = format!("it belongs to user {}, not to this user, {uid}", meta.uid());
        (whose, "only that user or root can remove it")
    } else if meta.mode() & OTHERS_WRITE != 0 && meta.mode() & STICKY == 0 {
        (format!("others may delete files in it (mode {:o})", meta.mode() & 0o7777), "chmod 700 it")
    } else {
        return Ok(directory.path);
    };
    let detail = format!("the default directory for locks is not safe: {trouble}; {remedy}, or use another directory");
    Err(Unknown::new(directory.name(), Fault::Unopened, detail))
}

// Converts a key to the name of its lock file.

/// The extension of lock files.
pub(super) const SUFFIX: &str = ".lock";

/// The extension of files with a completion.
const COMPLETION_SUFFIX: &str = ".once";

/// Most file systems limit a name to 255 bytes; the rest is reserved for the extension and for tools that add their own.
const LONGEST: usize = 200;
/// How much of a long key stays readable before its checksum.
const PREFIX: usize = 120;
/// The extension of the file that a process locks while it enters a row.
const ROW: &str = ".row";
/// The extension of the file that waiting writers lock.
const WRITER: &str = ".writer";

/// The unique, readable file name of `key`.
///
/// Lowercase letters, digits and `.` `_` `-` are unchanged, an uppercase letter is written as `+` and its lowercase
/// form, every other byte as `%` and two lowercase digits. So names also differ on a file system that ignores case, and
/// need no Unicode rules. A leading dot is written `%2e`: no name is hidden, or is `.` or `..`. A name longer
/// than 200 bytes is truncated and gets `~` and its SHA-256; no shorter name contains `~`.
pub(super) fn file_name(key: &Key) -> String {
    let mut name = String::with_capacity(key.as_str().len() + SUFFIX.len());
    let mut cut = 0;
    for (i, byte) in key.as_str().bytes().enumerate() {
        match byte {
            b'.' if i == 0 => name.push_str("%2e"),
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(char::from(byte)),
            b'A'..=b'Z' => name.extend(['+', char::from(byte.to_ascii_lowercase())]),
            // Writing to a string cannot fail.
            _ => drop(write!(name, "%{byte:02x}")),
        }
        if name.len() <= PREFIX {
            cut = name.len();
        }
    }
    if name.len() > LONGEST {
        name.truncate(cut);
        name.push('~');
        for byte in Hash::hash(key.as_str().as_bytes()) {
            let _ = write!(name, "{byte:02x}");
        }
    }
    name + SUFFIX
}

/// The name of the file with the completion of `key`.
pub(super) fn completion_file_name(key: &Key) -> String {
    let mut name = file_name(key);
    name.truncate(name.len() - SUFFIX.len());
    name + COMPLETION_SUFFIX
}

/// The file of a holder of a row; see the module `inspect`.
pub(super) fn slot_path(lock_file: &Path, slot: u32) -> PathBuf {
    beside(lock_file, &format!(".{slot}"))
}

/// The file that a process locks while it enters a row.
pub(super) fn row_path(lock_file: &Path) -> PathBuf {
    beside(lock_file, ROW)
}

/// The file that waiting writers lock; see the module `writer_mark`.
pub(super) fn writer_path(lock_file: &Path) -> PathBuf {
    beside(lock_file, WRITER)
}

/// It does not have the extension of lock files, so older versions ignore it.
fn beside(lock_file: &Path, extension: &str) -> PathBuf {
    let mut path = lock_file.as_os_str().to_owned();
    path.push(extension);
    path.into()
}

/// The name of the lock file to which this slot file belongs.
fn lock_file_of_slot(name: &str) -> Option<&str> {
    let (lock_file, number) = name.rsplit_once('.')?;
    let is_slot = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_slot && lock_file.ends_with(SUFFIX)).then_some(lock_file)
}

/// The name of the lock file whose waiters this file concerns when it is closed: a slot file, or the mark of a waiting writer.
pub(super) fn lock_file_of(name: &str) -> &str {
    let marked = name.strip_suffix(WRITER).filter(|lock_file| lock_file.ends_with(SUFFIX));
    lock_file_of_slot(name).or(marked).unwrap_or(name)
}

/// Whether this is the name of a lock file or of a file of its row.
pub(super) fn is_used(name: &str) -> bool {
    lock_file_of(name.strip_suffix(ROW).unwrap_or(name)).ends_with(SUFFIX)
}

/// The key of a lock file; `None` for other files, and for a long key, whose name contains only a checksum.
pub(super) fn key_of(file_name: &str) -> Option<Key> {
    let mut rest = file_name.strip_suffix(SUFFIX)?.as_bytes();
    let mut key = Vec::with_capacity(rest.len());
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match first {
            b'+' => tail.split_first().map(|(letter, tail)| (letter.to_ascii_uppercase(), tail))?,
            b'%' => {
                let (digits, tail) = tail.split_at_checked(2)?;
                (u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?, tail)
            }
            _ => (first, tail),
        };
        key.push(byte);
        rest = tail;
    }
    let key = Key::new(String::from_utf8(key).ok()?).ok()?;
    // A name in a non-canonical form is not a lock file.
    (self::file_name(&key) == file_name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn refusal(path: PathBuf) -> String {
        let to_inspect = private_dir_to_inspect(path.clone());
        let unknown = private_dir(path).unwrap_err();
        assert!(unknown.is_permanent(), "{unknown}");
        assert_eq!(to_inspect, Err(unknown.clone()), "inspecting it is equally dangerous");
        unknown.to_string()
    }

    #[test]
    fn the_default_directory_is_not_created_to_inspect_it() {
        let scratch = Scratch::new();
        let path = scratch.path().join("locks");
        assert_eq!(private_dir_to_inspect(path.clone()), Ok(path.clone()));
        assert!(!path.exists());
        private_dir(path.clone()).unwrap();
        assert_eq!(private_dir_to_inspect(path.clone()), Ok(path));
    }

    #[test]
    fn a_missing_directory_is_usable_if_its_parent_is() {
        let scratch = Scratch::new();
        let open = |path: &Path| Directory::open(path.to_owned());
        let path = scratch.path().join("some/locks");
        assert_eq!(open(&path).unwrap().existing(), scratch.path());
        assert!(open(&path).unwrap().is_missing() && !scratch.path().join("some").exists());
        symlink("nowhere", scratch.path().join("some")).unwrap();
        for dangling in [scratch.path().join("some"), path] {
            let unknown = open(&dangling).unwrap_err();
            assert!(unknown.to_string().contains("No such file or directory"), "{unknown}");
        }
    }

    #[test]
    fn a_default_directory_is_private_to_its_user() {
        let scratch = Scratch::new();
        let path = private_dir(scratch.path().join("locks")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(private_dir(path.clone()).unwrap(), path, "the existing directory is used");
    }

    #[test]
    fn a_default_directory_that_is_a_link_is_rejected() {
        let scratch = Scratch::new();
        let link = scratch.path().join("link");
        symlink(scratch.path(), &link).unwrap();
        assert!(refusal(link).contains("symbolic link"));
    }

    #[test]
    fn a_default_directory_writable_by_others_is_rejected_unless_sticky() {
        let scratch = Scratch::new();
        let path = scratch.path().join("open");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(path.clone()).contains("mode 777"));
        fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        assert!(private_dir(path).is_ok());
    }

    #[test]
    fn a_default_directory_of_another_user_is_rejected() {
        let scratch = Scratch::new();
        let path = scratch.path().join("theirs");
        fs::create_dir(&path).unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            // Only root can change the owner of a directory; for other users, the root directory belongs to another user.
            assert!(refusal(PathBuf::from("/")).contains("belongs to user 0"));
            return;
        }
        let refused = refusal(path.clone());
        assert!(refused.contains(&*path.to_string_lossy()) && refused.contains("belongs to user 12345"), "{refused}");
        assert!(refused.contains("only that user or root can remove it"), "{refused}");
    }

    #[test]
    fn a_missing_common_directory_is_reported_and_one_that_is_closed_is_a_choice_of_the_system() {
        let scratch = Scratch::new();
        let common = scratch.path().join("lock");
        let why = fallback(&common);
        assert_eq!(why.is_some(), cfg!(target_os = "linux"));
        assert!(why.is_none_or(|why| why.contains(&*common.to_string_lossy()) && why.contains("/tmp/fencelock-")));
        fs::create_dir(&common).unwrap();
        assert!(fallback(&common).is_none() && !is_everybodys(&common));
        fs::set_permissions(&common, Permissions::from_mode(0o1777)).unwrap();
        assert!(is_everybodys(&common));
    }

    #[test]
    fn a_lack_of_descriptors_is_named_and_not_the_fault_of_the_directory() {
        let directory = Directory::at("/x".into()).unwrap();
        for (errno, advice) in [(Errno::MFILE, "ulimit -n"), (Errno::NFILE, "fs.file-max")] {
            let text = directory.unknown("cannot inspect k.lock", &errno.into()).to_string();
            assert!(text.contains(advice) && !text.contains("another directory"), "{text}");
        }
    }
}

#[cfg(test)]
mod name_tests {
    use super::*;
    use proptest::prelude::*;

    fn named(key: &str) -> String {
        file_name(&Key::new(key).unwrap())
    }

    #[test]
    fn a_plain_key_names_its_file() {
        assert_eq!(named("orders-2024_11.csv"), "orders-2024_11.csv.lock");
        assert_eq!(named("sku:0001"), "sku%3a0001.lock");
        assert_eq!(named("a/../b"), "a%2f..%2fb.lock");
        assert_eq!(named("SKU"), "+s+k+u.lock");
        assert_eq!(named("100%"), "100%25.lock");
        assert_eq!(completion_file_name(&Key::new("sku:1").unwrap()), "sku%3a1.once");
    }

    #[test]
    fn no_name_is_hidden_or_leads_elsewhere() {
        assert_eq!(named("."), "%2e.lock");
        assert_eq!(named(".."), "%2e..lock");
        assert_eq!(named("/etc/passwd"), "%2fetc%2fpasswd.lock");
    }

    #[test]
    fn a_long_key_keeps_its_beginning_and_a_checksum() {
        let name = named(&"k".repeat(512));
        assert!(name.starts_with(&"k".repeat(120)) && name.len() == 120 + 1 + 64 + 5, "{name}");
        assert_ne!(name, named(&"k".repeat(511)));
        assert_eq!(key_of(&name), None);
    }

    #[test]
    fn a_long_key_is_cut_between_characters() {
        let name = named(&"锁".repeat(170));
        assert_eq!(name.find('~'), Some(120), "{name}");
        let name = named(&format!("x{}", "锁".repeat(100)));
        assert_eq!(name.find('~'), Some(118), "{name}");
    }

    #[test]
    fn other_files_have_no_key() {
        for name in ["", ".lock", "orders", "Orders.lock", "a%2.lock", "a%2F.lock", "%61.lock", "a+.lock", "+1.lock"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_files_of_a_row_are_no_lock_files() {
        let lock_file = Path::new("/d/a.lock");
        for path in [slot_path(lock_file, 0), slot_path(lock_file, 17), row_path(lock_file), writer_path(lock_file)] {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(is_used(name) && key_of(name).is_none(), "{name}");
        }
        assert_eq!(lock_file_of_slot("a.lock.17"), Some("a.lock"));
        for name in ["a.lock", "a.lock.", "a.lock.x", "a.0", "0", "a.lock.row", "a.lock.1.row"] {
            assert_eq!(lock_file_of_slot(name), None, "{name}");
        }
        assert_eq!(
            (lock_file_of("a.lock.17"), lock_file_of("a.lock.writer"), lock_file_of("a.writer")),
            ("a.lock", "a.lock", "a.writer")
        );
        for name in ["", "a", "a.row", "a.writer", "a.0", "a.lock.x", "a.lock.1.writer"] {
            assert!(!is_used(name), "{name}");
        }
    }

    /// Short and long keys with few different characters, so that similar keys are common.
    fn keys() -> impl Strategy<Value = String> {
        prop_oneof!["[aA.%+~2e/]{1,5}", "\\PC{1,60}", "[aA~]{195,205}", "[a%]{60,70}"]
    }

    proptest! {
        #[test]
        fn different_keys_have_different_files_even_where_case_is_ignored(a in keys(), b in keys()) {
            prop_assume!(a.len() <= Key::MAX_BYTES && b.len() <= Key::MAX_BYTES && a != b);
            prop_assert_ne!(named(&a).to_lowercase(), named(&b).to_lowercase());
        }

        #[test]
        fn a_name_is_one_plain_component_that_reads_back(key in keys()) {
            prop_assume!(key.len() <= Key::MAX_BYTES);
            let name = named(&key);
            prop_assert!(name.len() <= 205 && !name.starts_with('.') && !name.contains('/'), "{}", name);
            let back = key_of(&name);
            prop_assert!(back.is_none() == name.contains('~'), "{}", name);
            prop_assert!(back.is_none_or(|back| back.as_str() == key));
        }
    }
}
