//! Without inotify, waiters poll.

use super::directory::Directory;
use fencelock_core::{Key, Listeners};
use std::io;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Watch;

impl Watch {
    pub(super) fn new(_: Directory, _: Arc<Listeners>) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the same signature as with inotify")]
    pub(super) fn watch_holds(&self) {}

    #[expect(clippy::unused_self, reason = "the same signature as with inotify")]
    pub(super) fn subscribe(&self, _: &Key) -> bool {
        false
    }
}

pub(super) fn watched(_: &Directory) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
