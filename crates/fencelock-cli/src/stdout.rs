//! Detects a closed stdout, and a reader that has closed its end.
//!
//! The Rust runtime opens `/dev/null` in place of a closed standard stream before `main` starts. Writes to it succeed
//! silently, so the check must run earlier.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether stdout was closed at the start: `fencelock ... >&-`. Only Linux supports the check.
pub(crate) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// The interval of the check whether the reader has closed its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Returns when the reader of stdout has closed its end. A write detects this too, but there may be no write for a long time.
pub(crate) async fn reader_gone() {
    while !is_broken() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn is_broken() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut descriptors = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
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
