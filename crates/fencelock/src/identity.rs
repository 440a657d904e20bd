use crate::process::Process;
use fencelock_core::engine::Rng;
use fencelock_core::{HolderId, Invalid, Owner};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The identity of this process: host and process id.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    host: String,
    pub(crate) process: Process,
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
            Some(rng) => call(&mut *rng.lock().unwrap_or_else(PoisonError::into_inner)),
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
