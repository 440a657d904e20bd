use crate::process::Process;
use fencelock_core::engine::Rng;
use fencelock_core::{HolderId, Invalid, Owner};

/// The identity of this process: host and process id.
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
        Ok(Self { unlabelled: Owner::new(&host, process.id(), None)?, host, process })
    }

    pub(crate) fn owner(&self, label: Option<&str>) -> Result<Owner, Invalid> {
        match label {
            None => Ok(self.unlabelled.clone()),
            label => Owner::new(&self.host, self.process.id(), label),
        }
    }

    pub(crate) const fn process(&self) -> Process {
        self.process
    }
}

/// Random numbers of the operating system.
#[derive(Debug)]
pub(crate) struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&mut self) -> u64 {
        random()
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

/// Jitter for timers. If the system returns no random numbers, the jitter is zero.
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
