//! The worker messages of a workload, in addition to those of all workers.

use fencelock_lab::workers::{Harness, OnEof};
use fencelock_lab::{Entrance, Host};
use std::io;

/// The prefix of the message before a write, followed by the [`Entrance`]. The worker waits for a reply.
pub(super) const BEFORE_WRITE: &str = "before-write ";

/// The process that started this one.
pub(super) struct Parent(Harness);

impl Parent {
    /// Attaches to the parent. Also returns the first line, the job.
    pub(super) fn attach() -> io::Result<(Self, String)> {
        let harness = Harness::attach(OnEof::Kill)?;
        let job = harness.receive().unwrap_or_default();
        Ok((Self(harness), job))
    }
}

impl Host for Parent {
    fn start(&self) -> io::Result<()> {
        self.0.ready()
    }

    fn before_write(&self, holder: Entrance) -> io::Result<()> {
        self.0.request(&format!("{BEFORE_WRITE}{holder}"))
    }
}
