use crate::shim;
use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A process limit that a test reaches and leaves, for processes that it starts: they can start no thread.
#[derive(Debug)]
pub struct ThreadLimit {
    library: PathBuf,
    file: PathBuf,
}

impl ThreadLimit {
    /// A limit that is not reached. Its files are stored in `dir`.
    ///
    /// # Errors
    /// If the files cannot be written, or `cc` cannot compile the library that the processes are started with.
    pub fn new(dir: &Path) -> Result<Self> {
        let library = shim::compile(dir, "thread_limit", include_str!("../shim/thread_limit.c"))?;
        Ok(Self { library, file: dir.join("no-threads") })
    }

    /// From now on, no thread starts.
    ///
    /// # Errors
    /// If the file of the limit cannot be written.
    pub fn reach(&self) -> Result<()> {
        fs::write(&self.file, "")
    }

    /// From now on, threads start again.
    ///
    /// # Errors
    /// If the limit is not reached.
    pub fn leave(&self) -> Result<()> {
        fs::remove_file(&self.file)
    }

    /// The process has this limit.
    pub fn apply_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("FENCELOCK_THREAD_LIMIT", &self.file);
    }
}
