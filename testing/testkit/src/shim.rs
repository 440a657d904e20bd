//! Libraries in C that replace functions of the C library in one process.

use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a library for `LD_PRELOAD`. Its files are stored in `dir` under `name`.
pub(crate) fn compile(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let (source, library) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.so")));
    fs::write(&source, text)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let output = cc.output().map_err(|error| Error::other(format!("cannot run cc to compile {name}: {error}")))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Error::other(format!("{name} does not compile: {words}")));
    }
    Ok(library)
}
