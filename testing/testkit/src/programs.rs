//! Programs of other languages, which may be here or not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `scripts/test-interop` and `scripts/bench-peers` have put below `target/interop`.
///
/// # Errors
/// That it is not there.
pub fn installed(path: &str) -> Result<PathBuf, String> {
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop").join(path);
    if there.exists() {
        return Ok(there);
    }
    Err(format!("{path} is not installed; scripts/test-interop and scripts/bench-peers do it if it can be had"))
}

/// Whether a program runs and succeeds.
///
/// # Errors
/// That there is no `what`.
pub fn check(program: &Path, args: &[&str], what: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let there = command.status().is_ok_and(|status| status.success());
    if there { Ok(()) } else { Err(format!("there is no {what}")) }
}

/// PHP with its extension for Redis.
///
/// # Errors
/// That there is none.
pub fn php() -> Result<(), String> {
    let args = ["-r", "exit(extension_loaded('redis') ? 0 : 1);"];
    check(Path::new("php"), &args, "php with its extension redis")
}

/// A Python that has a module. The one of the system may be hidden behind another that has not.
///
/// # Errors
/// That there is none.
pub fn python(module: &str) -> Result<PathBuf, String> {
    let known = installed("venv/bin/python").into_iter().chain(["python3".into(), "/usr/bin/python3".into()]);
    let mut usable = known.filter(|python| check(python, &["-c", &format!("import {module}")], "").is_ok());
    usable.next().ok_or_else(|| format!("there is no python3 with the module {module}; scripts/test-interop gets one"))
}
