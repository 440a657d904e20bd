use fencelock_core::engine::Rng;
use fencelock_core::{HolderId, Invalid, Owner, lock};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The identity of this process: host and process id.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    host: String,
    pub(crate) process: Process,
    /// Most locks have no label.
    unlabelled: Owner,
}

#[cfg(unix)]
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
pub(crate) fn host() -> String {
    std::env::var("COMPUTERNAME").or_else(|_| std::env::var("HOSTNAME")).unwrap_or_else(|_| "localhost".to_owned())
}

impl Identity {
    pub(crate) fn of_this_process() -> Result<Self, Invalid> {
        let host = host();
        let process = Process::current();
        Ok(Self { unlabelled: Owner::new(&host, process.id(), None)?, host, process })
    }

    pub(crate) fn owner(&self, label: Option<&str>) -> Result<Owner, Invalid> {
        match label {
            None => Ok(self.unlabelled.clone()),
            label => Owner::new(&self.host, self.process.id(), label),
        }
    }
}

/// The random numbers of a client: those of the operating system, or those of a test that replays a schedule.
#[derive(Clone, Default)]
pub(crate) struct ClientRng(Option<Arc<Mutex<dyn Rng + Send>>>);

impl ClientRng {
    pub(crate) fn of(rng: impl Rng + Send + 'static) -> Self {
        Self(Some(Arc::new(Mutex::new(rng))))
    }

    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut dyn Rng) -> R) -> R {
        match &self.0 {
            None => call(&mut SystemRng),
            Some(rng) => call(&mut *lock(rng)),
        }
    }

    /// A number that spreads timers.
    pub(crate) fn next(&self) -> u64 {
        self.with(|rng| rng.next_u64())
    }
}

impl fmt::Debug for ClientRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientRng")
    }
}

/// Random numbers of the operating system.
#[derive(Debug)]
struct SystemRng;

impl Rng for SystemRng {
    /// If the system returns no random numbers, timers are not spread.
    fn next_u64(&mut self) -> u64 {
        getrandom::u64().unwrap_or(0)
    }

    /// No random numbers are stored in advance, because memory is copied by fork, and when a virtual machine is resumed twice
    /// from one snapshot. Then two clients would use one holder id, and a backend would grant both. Only the kernel detects such
    /// a resume, so it is read each time, which takes less than a microsecond.
    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Invalid::new(format!("the operating system returned no random numbers: {error}")))?;
        Ok(HolderId::from_bytes(bytes))
    }
}

// Which process runs this code, without a system call.

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
    use std::collections::HashSet;

    #[test]
    fn every_holder_id_is_fresh() {
        let ids = (0..200).map(|_| SystemRng.holder_id().unwrap());
        assert_eq!(ids.collect::<HashSet<_>>().len(), 200);
    }
}

#[cfg(test)]
mod process_tests {
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
