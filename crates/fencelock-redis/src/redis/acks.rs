//! What `acks=N` asks of replicas.

use fencelock_core::{Fault, Unknown};
use redis::Cmd;
use std::time::Duration;

/// How many replicas must confirm, and in what time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acks {
    pub(crate) replicas: u32,
    pub(crate) limit: Duration,
}

impl Acks {
    /// `None` if there is nothing to wait for.
    pub(crate) fn new(replicas: u32, limit: Duration) -> Option<Self> {
        (replicas > 0).then_some(Self { replicas, limit })
    }

    /// Whether so many suffice.
    pub(crate) fn enough(self, node: &str, confirmed: u32) -> Result<(), Unknown> {
        if confirmed >= self.replicas {
            return Ok(());
        }
        let fault = Fault::NotReplicated { confirmed, wanted: self.replicas };
        Err(Unknown::new(node, fault, format!("within {} ms", self.limit.as_millis())))
    }

    pub(super) fn wait(self) -> Cmd {
        let mut wait = redis::cmd("WAIT");
        // A limit of 0 would mean for ever; the URL does not take it.
        wait.arg(self.replicas).arg(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX));
        wait
    }
}
