//! The permissions of lock files. A user who can open a lock file, even only for reading, can lock it and block all others.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Reading and writing, for the group and for others.
const GROUP: u32 = 0o060;
const OTHERS: u32 = 0o006;

/// New files in a directory with this bit have the group of the directory.
pub(super) const SETGID: u32 = 0o2000;

/// The maximum permissions of a file of the group `gid` in this directory: the group and others may do what they may do to the
/// directory itself. A user with read permission only must not be able to lock.
fn most(directory: &Metadata, gid: u32) -> u32 {
    let mode = directory.mode();
    let others = if mode & 0o002 == 0 { 0 } else { OTHERS };
    // A file of another group would admit that group, unless only users of the directory can reach it.
    let is_of_group = gid == directory.gid() || mode & 0o001 == 0 || others != 0;
    let group = if mode & 0o020 != 0 && is_of_group { GROUP } else { 0 };
    0o600 | group | others
}

/// Creates a lock file, and fails if it exists.
///
/// Users who may write to the directory can use it, unless the umask removes read permission: so 077 makes it private
/// to its user, and the usual 022 does not exclude the other users of a shared directory. The file never has more permissions
/// than at the end.
pub(super) fn create(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let directory = path.parent().map(fs::metadata).transpose()?;
    let group_of_new = |directory: &Metadata| {
        let inherits = directory.mode() & SETGID != 0 || !cfg!(any(target_os = "linux", target_os = "android"));
        if inherits { directory.gid() } else { rustix::process::getegid().as_raw() }
    };
    let mode = directory.as_ref().map_or(0o600, |directory| most(directory, group_of_new(directory)));
    let file = options.mode(mode).create_new(true).open(path)?;
    // The umask has been applied.
    let meta = file.metadata()?;
    let left = meta.mode() & 0o777;
    let most = directory.map_or(0o600, |directory| most(&directory, meta.gid()));
    let shared =
        [GROUP, OTHERS].into_iter().filter(|class| left & class & 0o044 != 0).fold(0o600, |all, class| all | class);
    if shared & most != left
        && let Err(error) = file.set_permissions(Permissions::from_mode(shared & most))
    {
        tracing::debug!(path = %path.display(), %error, "a new lock file keeps the permissions of the umask");
    }
    Ok(file)
}

/// The permissions of a lock file beyond the maximum for its directory; 0 if there are none, or if they are unknown.
pub(super) fn excess(path: &Path, meta: &Metadata) -> u32 {
    let Some(Ok(directory)) = path.parent().map(fs::metadata) else { return 0 };
    meta.mode() & 0o077 & !most(&directory, meta.gid())
}

/// Removes excess permissions from an existing file. Only its owner can; `doctor` reports the other files.
pub(super) fn tighten(file: &File, path: &Path) -> io::Result<()> {
    let meta = file.metadata()?;
    let excess = excess(path, &meta);
    if excess == 0 || !meta.is_file() || !is_only_name(path, inode(&meta)).unwrap_or(false) {
        return Ok(());
    }
    let (before, after) = (meta.mode() & 0o777, meta.mode() & 0o777 & !excess);
    match file.set_permissions(Permissions::from_mode(after)) {
        Ok(()) => tracing::warn!(
            "{}: users who may not write to this directory could lock this file (mode {before:o}); its mode is now {after:o}",
            path.display()
        ),
        Err(error) => tracing::debug!(path = %path.display(), %error, "too many users can lock this file"),
    }
    Ok(())
}

/// A lock file is a regular file with one name: a second name could be outside of this directory, and writing
/// here would change that file.
pub(super) fn check_plain(meta: &Metadata) -> io::Result<()> {
    if !meta.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if meta.nlink() > 1 {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("it has {} names (hard links)", meta.nlink())));
    }
    Ok(())
}

/// Device and number of a file.
pub(super) fn inode(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// What the path leads to, if it is this file.
pub(super) fn named(path: &Path, file: (u64, u64)) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta).filter(|meta| inode(meta) == file)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the path leads to this open file, which has no second name. Another user may remove that name for a moment, so that the
/// number of names alone proves nothing: here the same look shows where the path leads.
pub(super) fn is_only_name(path: &Path, file: (u64, u64)) -> io::Result<bool> {
    named(path, file)?.map_or(Ok(false), |meta| check_plain(&meta).map(|()| true))
}

/// For a file that is written without a lock on it.
pub(super) fn check_only_name(path: &Path, file: &File) -> io::Result<()> {
    if is_only_name(path, inode(&file.metadata()?))? {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "another file was put in its place"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::scratch::Scratch;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn open_to_create(path: &Path) -> File {
        create(OpenOptions::new().read(true).write(true), path).unwrap()
    }

    /// The umask of this test is the usual one, which removes no read permission.
    #[test]
    fn a_file_is_open_only_to_users_who_may_write_to_the_directory() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        for (directory, file) in [
            (0o700, 0o600),
            (0o755, 0o600),
            (0o750, 0o600),
            (0o711, 0o600),
            (0o2770, 0o660),
            (0o3770, 0o660),
            (0o2775, 0o660),
            (0o1777, 0o666),
        ] {
            fs::set_permissions(scratch.path(), Permissions::from_mode(directory)).unwrap();
            open_to_create(&path);
            assert_eq!(mode(&path), file, "in a directory of mode {directory:o}");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn excess_permissions_are_removed_by_the_owner() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.lock");
        for (directory, before, after) in [(0o755, 0o644, 0o600), (0o2775, 0o664, 0o660), (0o1777, 0o666, 0o666)] {
            let file = open_to_create(&path);
            fs::set_permissions(scratch.path(), Permissions::from_mode(directory)).unwrap();
            file.set_permissions(Permissions::from_mode(before)).unwrap();
            assert_eq!(excess(&path, &file.metadata().unwrap()), before & !after);
            tighten(&file, &path).unwrap();
            assert_eq!(mode(&path), after, "in a directory of mode {directory:o}");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_of_another_group_is_not_opened_to_that_group_where_it_can_be_reached() {
        let scratch = Scratch::new();
        let group = fs::metadata(scratch.path()).unwrap().gid();
        for (directory, expected) in [(0o775, 0o600), (0o770, 0o660), (0o1777, 0o666)] {
            fs::set_permissions(scratch.path(), Permissions::from_mode(directory)).unwrap();
            let directory = fs::metadata(scratch.path()).unwrap();
            assert_eq!(most(&directory, group + 1), expected, "{:o}", directory.mode());
        }
    }

    #[test]
    fn a_file_from_elsewhere_is_recognized_although_its_second_name_is_gone() {
        let scratch = Scratch::new();
        let (path, elsewhere) = (scratch.path().join("a.lock"), scratch.path().join("elsewhere"));
        fs::write(&elsewhere, "precious").unwrap();
        fs::set_permissions(&elsewhere, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        fs::hard_link(&elsewhere, &path).unwrap();
        let file = File::open(&path).unwrap();
        let is_only_name = || is_only_name(&path, inode(&file.metadata().unwrap()));
        assert!(is_only_name().is_err(), "two names");
        fs::remove_file(&path).unwrap();
        check_plain(&file.metadata().unwrap()).unwrap();
        assert!(!is_only_name().unwrap());
        tighten(&file, &path).unwrap();
        assert_eq!(mode(&elsewhere), 0o644);
        fs::rename(&elsewhere, &path).unwrap();
        assert!(is_only_name().unwrap());
    }
}
