use fencelock_core::{HolderId, Invalid, Owner};

/// Who this process is to others: host and process id.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    host: String,
    pid: u32,
    /// Most locks have no label.
    unlabelled: Owner,
}

impl Identity {
    pub(crate) fn of_this_process() -> Result<Self, Invalid> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let pid = std::process::id();
        Ok(Self { unlabelled: Owner::new(&host, pid, None)?, host, pid })
    }

    pub(crate) fn owner(&self, label: Option<&str>) -> Result<Owner, Invalid> {
        match label {
            None => Ok(self.unlabelled.clone()),
            label => Owner::new(&self.host, self.pid, label),
        }
    }

    /// Whether this is still the process that made it: a child after `fork` has the memory, but holds nothing.
    pub(crate) fn is_this_process(&self) -> bool {
        self.pid == std::process::id()
    }
}

/// A proof that nobody can guess, from the operating system's source. Fresh for every attempt.
pub(crate) fn fresh_holder() -> Result<HolderId, Invalid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Invalid::new(format!("the operating system gave no random numbers: {error}")))?;
    Ok(HolderId::from_bytes(bytes))
}

/// Spreads timers. If the system has no dice to throw, the jitter is nil and nothing else suffers.
pub(crate) fn dice() -> u64 {
    getrandom::u64().unwrap_or(0)
}
