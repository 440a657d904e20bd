//! Whether there is a stdout at all.
//!
//! The runtime of Rust opens `/dev/null` in the place of a standard stream that is closed, before `main` begins. Whatever is
//! written there is gone without an error, so it must be looked at earlier.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether stdout was closed when the program was started: `fencelock ... >&-`. Only Linux can tell.
pub(crate) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
extern "C" fn look() {
    let closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// The loader calls what stands in this section before the runtime of Rust begins.
#[cfg(target_os = "linux")]
#[used]
#[expect(unsafe_code, reason = "a place in a section of the program; what is called there makes one system call")]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
