//! Detects a closed stdout.
//!
//! The Rust runtime opens `/dev/null` in place of a closed standard stream before `main` starts. Writes to it succeed
//! silently, so the check must run earlier.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether stdout was closed at the start: `fencelock ... >&-`. Only Linux supports the check.
pub(crate) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
extern "C" fn check_stdout() {
    let closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// The loader calls functions in this section before the Rust runtime starts.
#[cfg(target_os = "linux")]
#[used]
#[expect(unsafe_code, reason = "the function in this section makes one system call")]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = check_stdout;
