//! The directory of the lock files, and its troubles in words.

use super::name::file_name;
use fencelock_core::{Fault, Key, Unknown};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What we create is for our user alone: whoever may write here can delete a lock file from under its holder.
const PRIVATE: u32 = 0o700;

/// Others than the owner may write; and, if so, the bit that keeps them from deleting what is not theirs.
pub(super) const GROUP_WRITE: u32 = 0o020;
pub(super) const OTHERS_WRITE: u32 = 0o022;
pub(super) const STICKY: u32 = 0o1000;

const NO_LOCK_FILE: &str = "a lock file is a regular file with one name: remove what is there";

/// A directory that existed, and could be read and written, when it was opened.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(super) fn open(path: PathBuf) -> Result<Self, Unknown> {
        // A relative path would become another directory when the process changes its own.
        let absolute = std::path::absolute(&path);
        let mut directory = Self { path };
        let resolved = absolute.map_err(|error| directory.unknown("cannot resolve this path", &error));
        directory.path = resolved?;
        directory.create()?;
        directory.check_access()?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// `file:` and the path.
    pub(super) fn name(&self) -> String {
        format!("file:{}", self.path.display())
    }

    pub(super) fn file_of(&self, key: &Key) -> PathBuf {
        self.path.join(file_name(key))
    }

    /// Creates it with all that leads there, if it is missing.
    pub(super) fn create(&self) -> Result<(), Unknown> {
        if fs::metadata(&self.path).is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        let created = DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.path);
        created.map_err(|error| self.unknown("cannot create this directory", &error))
    }

    /// Reads and writes are asked of the kernel, not tried: a try would leave something behind.
    pub(super) fn check_access(&self) -> Result<(), Unknown> {
        let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(CWD, &self.path, access, AtFlags::EACCESS)
            .map_err(|error| self.unknown("cannot read and write this directory", &error.into()))?;
        fs::read_dir(&self.path).map_err(|error| self.unknown("cannot read this directory", &error))?;
        Ok(())
    }

    /// The words of the operating system, and what to do.
    pub(super) fn unknown(&self, what: &str, error: &io::Error) -> Unknown {
        let (fault, advice) = match error.kind() {
            ErrorKind::PermissionDenied => {
                (Fault::Denied, "give this user read and write access to it and its files, or name another directory")
            }
            ErrorKind::ReadOnlyFilesystem => {
                (Fault::Denied, "the file system is read-only: name a directory that can be written")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                (Fault::Full, "make room there; a lock needs one block")
            }
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                (Fault::Other, "something else than a directory is there: remove it, or name another directory")
            }
            // Waiting would not make it one; somebody has put it there.
            ErrorKind::InvalidInput | ErrorKind::IsADirectory => (Fault::Denied, NO_LOCK_FILE),
            _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => (Fault::Denied, NO_LOCK_FILE),
            ErrorKind::TimedOut => (Fault::Timeout, "the file server does not answer"),
            ErrorKind::StaleNetworkFileHandle | ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
                (Fault::Unreachable, "the file server is not reachable")
            }
            _ => (Fault::Other, "name another directory"),
        };
        Unknown::new(self.name(), fault, format!("{what}: {error}; {advice}"))
    }
}

/// `fencelock-<uid>` in `/run/lock`, or in `/tmp` where there is no such place for everybody; created and checked.
///
/// It must be the same for a user's shells, cron jobs and services, or they would not exclude each other. So no
/// variable of the environment names it: `XDG_RUNTIME_DIR` is there in a login session and not in a cron job, and goes
/// away with the last session; `TMPDIR` is whatever somebody set.
pub(super) fn default_dir() -> Result<PathBuf, Unknown> {
    let uid = rustix::process::geteuid().as_raw();
    let everybodys = |dir: &&str| {
        fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.mode() & STICKY != 0 && meta.mode() & 0o002 != 0)
    };
    let parent = Some("/run/lock").filter(everybodys).unwrap_or("/tmp");
    private_dir(Path::new(parent).join(format!("fencelock-{uid}")))
}

/// Creates a directory in a place where anybody may have been first, and refuses it unless it is ours alone.
fn private_dir(path: PathBuf) -> Result<PathBuf, Unknown> {
    let directory = Directory { path };
    match DirBuilder::new().mode(PRIVATE).create(&directory.path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(directory.unknown("cannot create the default directory for locks", &error));
        }
        _ => {}
    }
    let meta = fs::symlink_metadata(&directory.path)
        .map_err(|error| directory.unknown("cannot check the default directory for locks", &error))?;
    let uid = rustix::process::geteuid().as_raw();
    let trouble = if meta.is_symlink() {
        "it is a symbolic link, which somebody else may turn elsewhere".to_owned()
    } else if !meta.is_dir() {
        "it is not a directory".to_owned()
    } else if meta.uid() != uid {
        format!("it belongs to user {}, not to this user, {uid}", meta.uid())
    } else if meta.mode() & OTHERS_WRITE != 0 && meta.mode() & STICKY == 0 {
        format!("others may delete files in it (mode {:o}; chmod 700 it)", meta.mode() & 0o7777)
    } else {
        return Ok(directory.path);
    };
    let detail =
        format!("will not keep locks in the default directory: {trouble}; remove it, or name another directory");
    Err(Unknown::new(directory.name(), Fault::Denied, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn refusal(path: PathBuf) -> String {
        let unknown = private_dir(path).unwrap_err();
        assert!(unknown.is_permanent(), "{unknown}");
        unknown.to_string()
    }

    #[test]
    fn a_default_directory_is_created_for_its_user_alone() {
        let scratch = Scratch::new();
        let path = private_dir(scratch.path().join("locks")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(private_dir(path.clone()).unwrap(), path, "the second time it is found");
    }

    #[test]
    fn a_default_directory_that_is_a_link_is_refused() {
        let scratch = Scratch::new();
        let link = scratch.path().join("link");
        symlink(scratch.path(), &link).unwrap();
        assert!(refusal(link).contains("symbolic link"));
    }

    #[test]
    fn a_default_directory_that_others_may_write_is_refused_unless_sticky() {
        let scratch = Scratch::new();
        let path = scratch.path().join("open");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(path.clone()).contains("mode 777"));
        fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        assert!(private_dir(path).is_ok());
    }

    #[test]
    fn a_default_directory_of_another_user_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.path().join("theirs");
        fs::create_dir(&path).unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            // Only root may give a directory away; but then the root directory is not ours, either.
            assert!(refusal(PathBuf::from("/")).contains("belongs to user 0"));
            return;
        }
        assert!(refusal(path).contains("belongs to user 12345"));
    }
}
