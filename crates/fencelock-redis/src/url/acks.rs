//! The settings of `acks=N`.

use fencelock_core::{Fault, Unknown};
use redis::Cmd;
use std::time::Duration;

/// The number of replicas that must confirm, and the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acks {
    pub(crate) replicas: u32,
    pub(crate) limit: Duration,
}

impl Acks {
    /// `None` if no replica is required.
    pub(crate) fn new(replicas: u32, limit: Duration) -> Option<Self> {
        (replicas > 0).then_some(Self { replicas, limit })
    }

    /// Checks the number of confirmations.
    pub(crate) fn enough(self, node: &str, confirmed: u32) -> Result<(), Unknown> {
        if confirmed >= self.replicas {
            return Ok(());
        }
        let fault = Fault::NotReplicated { confirmed, wanted: self.replicas };
        Err(Unknown::new(node, fault, format!("within {} ms", self.limit.as_millis())))
    }

    pub(crate) fn wait(self) -> Cmd {
        let mut wait = redis::cmd("WAIT");
        // A timeout of 0 would mean no limit; the URL rejects it.
        wait.arg(self.replicas).arg(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX));
        wait
    }
}
