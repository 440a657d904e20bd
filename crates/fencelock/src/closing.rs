//! The end of a client, and the tasks that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::watch;

/// Whether a client is closed, and what closing waits for.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: AtomicBool,
    /// Guards with a release in progress.
    releasing: AtomicUsize,
    changed: watch::Sender<()>,
}

/// A guard with a release in progress; dropped after the remaining work was passed to the reaper.
#[derive(Debug)]
pub(crate) struct Releasing(Arc<Closing>);

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, Ordering::SeqCst);
        self.0.emptied();
    }
}

impl Closing {
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Registers a release to wait for.
    pub(crate) fn releasing(self: &Arc<Self>) -> Releasing {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(Arc::clone(self))
    }

    /// Notifies the waiting tasks that a table may be empty. It is called after its lock was held: a task that read the table
    /// under that lock has started the closing before, which is visible here.
    pub(crate) fn emptied(&self) {
        if self.has_begun() {
            self.changed.send_replace(());
        }
    }

    /// Whether a release is in progress.
    pub(crate) fn is_releasing(&self) -> bool {
        self.releasing.load(Ordering::SeqCst) > 0
    }

    /// Waits until this is so. It is looked at after each [`Closing::emptied`].
    pub(crate) async fn until(&self, is_so: impl Fn() -> bool) {
        let _ = self.changed.subscribe().wait_for(|()| is_so()).await;
    }
}
