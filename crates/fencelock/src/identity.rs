use fencelock_core::engine::Rng;
use fencelock_core::{HolderId, Invalid, Owner};

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
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    host: String,
    process: Process,
    /// Most locks have no label.
    unlabelled: Owner,
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").or_else(|_| std::env::var("HOSTNAME")).unwrap_or_else(|_| "localhost".to_owned())
}

impl Identity {
    pub(crate) fn of_this_process() -> Result<Self, Invalid> {
        let host = host();
        let process = Process::current();
        Ok(Self { unlabelled: Owner::new(&host, process.0, None)?, host, process })
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
}

/// The random numbers of the operating system.
#[derive(Debug)]
pub(crate) struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&mut self) -> u64 {
        random()
    }

    /// Nothing is drawn ahead, for memory is copied: by fork, and when a virtual machine is resumed twice from one snapshot.
    /// Then two would claim as one holder, and a place would grant both. The kernel is told of such a resumption, this
    /// process is not; so it asks each time, which costs less than a microsecond.
    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Invalid::new(format!("the operating system gave no random numbers: {error}")))?;
        Ok(HolderId::from_bytes(bytes))
    }
}

/// Spreads timers. If the system gives no random numbers, the jitter is nil and nothing else suffers.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
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
