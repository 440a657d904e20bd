//! Opens lock files.

use super::permission;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Prevents users without write permission to the directory from locking the file, if possible. Existing locks stay.
pub(super) fn tighten_file(path: &Path) {
    if let Ok(file) = options().read(true).open(path) {
        let _ = permission::tighten(&file, path);
    }
}

/// Does not follow symbolic links, and does not wait for the other end of a pipe.
pub(super) fn options() -> OpenOptions {
    use rustix::fs::OFlags;
    let mut options = OpenOptions::new();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// `None` if the file was created or deleted concurrently.
///
/// An existing file is never opened with `O_CREAT`: in a sticky directory like `/tmp`, Linux refuses that for files
/// of other users (`fs.protected_regular`).
pub(super) fn open_or_create(path: &Path) -> io::Result<Option<(File, bool)>> {
    match options().read(true).write(true).open(path) {
        Ok(file) => {
            permission::tighten(&file, path)?;
            return Ok(Some((file, false)));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match permission::create(options().read(true).write(true), path) {
        Ok(file) => Ok(Some((file, true))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}
