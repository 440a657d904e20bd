use fencelock_core::{HolderId, Invalid, Owner};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The process that made something. A child after `fork` has a copy of its memory, but none of its threads: it holds no lock,
/// must send nothing, and must not wait for a mutex that a thread of the parent may have held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether this is still that process, and not a fork of it.
    pub(crate) fn is_current(self) -> bool {
        self.0 == std::process::id()
    }

    /// # Errors
    /// [`Invalid`] in a fork of it, where no thread of its runtime is there to answer.
    pub(crate) fn check(self) -> Result<(), Invalid> {
        if self.is_current() {
            return Ok(());
        }
        Err(Invalid::new("this client belongs to the process that this one was forked from; connect another one"))
    }
}

/// Who this process is to others: host and process id.
#[derive(Debug)]
pub(crate) struct Identity {
    host: String,
    process: Process,
    /// Most locks have no label.
    unlabelled: Owner,
    randoms: Mutex<Randoms>,
}

/// Random bytes from the operating system, drawn ahead: a system call for each attempt would cost a tenth of it.
#[derive(Debug)]
struct Randoms {
    bytes: [u8; 1024],
    used: usize,
    /// A child made by fork has a copy of what is left, and must not use it.
    process: Process,
}

impl Identity {
    pub(crate) fn of_this_process() -> Result<Self, Invalid> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let process = Process::current();
        let randoms = Randoms { bytes: [0; 1024], used: 1024, process };
        Ok(Self { unlabelled: Owner::new(&host, process.0, None)?, host, process, randoms: Mutex::new(randoms) })
    }

    pub(crate) fn owner(&self, label: Option<&str>) -> Result<Owner, Invalid> {
        match label {
            None => Ok(self.unlabelled.clone()),
            label => Owner::new(&self.host, self.process.0, label),
        }
    }

    pub(crate) const fn process(&self) -> Process {
        self.process
    }

    /// A proof that nobody can guess, from the operating system's source. Fresh for every attempt.
    pub(crate) fn fresh_holder(&self) -> Result<HolderId, Invalid> {
        self.randoms.lock().unwrap_or_else(PoisonError::into_inner).take().map(HolderId::from_bytes)
    }
}

impl Randoms {
    fn take(&mut self) -> Result<[u8; 16], Invalid> {
        if self.used == self.bytes.len() || !self.process.is_current() {
            getrandom::fill(&mut self.bytes)
                .map_err(|error| Invalid::new(format!("the operating system gave no random numbers: {error}")))?;
            (self.used, self.process) = (0, Process::current());
        }
        let mut taken = [0; 16];
        taken.copy_from_slice(&self.bytes[self.used..self.used + 16]);
        self.bytes[self.used..self.used + 16].fill(0);
        self.used += 16;
        Ok(taken)
    }
}

/// Spreads timers. If the system has no dice to throw, the jitter is nil and nothing else suffers.
pub(crate) fn dice() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Attempts that got in each other's way part only if their pauses differ by more than a trip.
pub(crate) fn anywhere_in(pause: Duration, dice: u64) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros / 4 + dice % (micros - micros / 4 + 1))
}
