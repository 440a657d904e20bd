//! Optional programs in other languages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of a program that `scripts/test-interop` and `scripts/bench-peers` install below `target/interop`.
///
/// # Errors
/// If the program is not installed.
pub fn installed(path: &str) -> Result<PathBuf, String> {
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop").join(path);
    if there.exists() {
        return Ok(there);
    }
    Err(format!("{path} is not installed; scripts/test-interop and scripts/bench-peers install it if it is available"))
}

/// Whether a program runs and succeeds.
///
/// # Errors
/// If `what` does not exist.
pub fn check(program: &Path, args: &[&str], what: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let there = command.status().is_ok_and(|status| status.success());
    if there { Ok(()) } else { Err(format!("there is no {what}")) }
}

/// PHP with its Redis extension.
///
/// # Errors
/// If there is none.
pub fn php() -> Result<(), String> {
    let args = ["-r", "exit(extension_loaded('redis') ? 0 : 1);"];
    check(Path::new("php"), &args, "php with its extension redis")
}

/// A Python with this module. The Python in `PATH` may hide another one that has the module.
///
/// # Errors
/// If there is none.
pub fn python(module: &str) -> Result<PathBuf, String> {
    let known = installed("venv/bin/python").into_iter().chain(["python3".into(), "/usr/bin/python3".into()]);
    let mut usable = known.filter(|python| check(python, &["-c", &format!("import {module}")], "").is_ok());
    usable
        .next()
        .ok_or_else(|| format!("there is no python3 with the module {module}; scripts/test-interop installs one"))
}
