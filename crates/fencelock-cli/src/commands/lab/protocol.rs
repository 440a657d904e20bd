//! What a worker of a story says besides what all workers say.

use fencelock_lab::workers::{Harness, OnEof};
use fencelock_lab::{Entrance, Host};
use std::io;

/// What it says, followed by the [`Entrance`], when it has the lock and is about to write. It goes on when it is told to.
pub(super) const BEFORE_WRITE: &str = "before-write ";

/// The process that started this one.
pub(super) struct Parent(Harness);

impl Parent {
    /// Attaches to it. Gives the first line too, the job.
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
        self.0.ask(&format!("{BEFORE_WRITE}{holder}"))
    }
}
