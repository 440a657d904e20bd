//! Which process runs this code, without a system call.

use fencelock_core::Invalid;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that created a value. After `fork`, a child has a copy of its memory, but none of its threads: it holds no lock,
/// must send no request, and must not wait for a mutex that a thread of the parent may have held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    id: u32,
    /// The id of the process that reads it, if the kernel clears it in each child. Otherwise the kernel is asked.
    current: Option<&'static AtomicU32>,
}

impl Process {
    pub(crate) fn current() -> Self {
        let current = cleared_in_children();
        loop {
            let id = std::process::id();
            if let Some(current) = current {
                current.store(id, Ordering::Relaxed);
            }
            // Otherwise a signal handler has forked before the store.
            if id == std::process::id() {
                return Self { id, current };
            }
        }
    }

    pub(crate) const fn id(self) -> u32 {
        self.id
    }

    /// Whether this is still that process, and not a forked child.
    pub(crate) fn is_current(self) -> bool {
        self.id == self.current.map_or_else(std::process::id, |current| current.load(Ordering::Relaxed))
    }

    /// What a forked child has instead, in tests.
    #[cfg(test)]
    pub(crate) const fn of_the_parent(self) -> Self {
        Self { id: self.id + 1, ..self }
    }

    /// # Errors
    /// [`Invalid`] in a forked child, where no thread of the runtime exists.
    pub(crate) fn check(self) -> Result<(), Invalid> {
        if self.is_current() {
            return Ok(());
        }
        Err(Invalid::new("this client belongs to the process that this one was forked from; connect another one"))
    }
}

/// A number in a page that the kernel fills with zeros in a child, also if the child was not created by the C library.
///
/// It is `None` if the kernel has no such pages. An emulator that accepts any advice has none either, whatever it returns.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "only madvise makes such a page, and a system call for each check is a sixth of a local hand-off"
)]
fn cleared_in_children() -> Option<&'static AtomicU32> {
    use std::ptr;
    use std::sync::OnceLock;

    static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        const NO_ADVICE: i32 = -1;
        // The kernel takes whole pages.
        let (size, access) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the kernel chooses where the new page is, so it replaces no memory.
        let page = unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page is this function's own, and no reference to it exists yet.
        let advise = |advice| unsafe { libc::madvise(page, size, advice) } == 0;
        // SAFETY: the page is aligned for any number, filled with zeros, never freed, and accessed through this reference alone.
        (!advise(NO_ADVICE) && advise(libc::MADV_WIPEONFORK)).then(|| unsafe { &*page.cast::<AtomicU32>() })
    })
}

#[cfg(not(target_os = "linux"))]
const fn cleared_in_children() -> Option<&'static AtomicU32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_compared_with_the_running_one() {
        for current in [cleared_in_children(), None] {
            let this = Process { current, ..Process::current() };
            assert!(this.is_current() && this.check().is_ok());
            assert!(!this.of_the_parent().is_current() && this.of_the_parent().check().is_err());
        }
    }
}
