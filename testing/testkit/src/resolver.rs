use crate::shim;
use std::fs;
use std::io::Result;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A host name whose addresses a test sets, for processes that it starts.
#[derive(Debug)]
pub struct Resolver {
    library: PathBuf,
    file: PathBuf,
}

impl Resolver {
    /// The name. It does not exist elsewhere.
    pub const NAME: &str = "redis.test";

    /// A name without an address. Its files are stored in `dir`.
    ///
    /// # Errors
    /// If the files cannot be written, or `cc` cannot compile the library that the processes are started with.
    pub fn new(dir: &Path) -> Result<Self> {
        let library = shim::compile(dir, "resolver", include_str!("../shim/resolver.c"))?;
        let this = Self { library, file: dir.join("addresses") };
        this.set(&[])?;
        Ok(this)
    }

    /// Sets the addresses, in the order in which they are returned.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, addresses: &[IpAddr]) -> Result<()> {
        let lines: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
        let new = self.file.with_extension("new");
        fs::write(&new, lines.join("\n"))?;
        // A process sees the old addresses or the new ones.
        fs::rename(new, &self.file)
    }

    /// The process resolves the name in this way.
    pub fn apply_to(&self, command: &mut Command) {
        let setting = format!("{}:{}", Self::NAME, self.file.display());
        command.env("LD_PRELOAD", &self.library).env("FENCELOCK_RESOLVER", setting);
    }
}
