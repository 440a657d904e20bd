//! The end of a client, and who is told of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Whether a client is closed, and what its closing waits for.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: AtomicBool,
    /// Guards that are being released by their owners.
    releasing: AtomicUsize,
    changed: Notify,
}

/// A guard that is being released; dropped after whatever is left of that was given to the reaper.
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

    /// There is one release more to wait for.
    pub(crate) fn releasing(self: &Arc<Self>) -> Releasing {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(Arc::clone(self))
    }

    /// A table that is empty in the end has become smaller. Called after its lock was held: whoever looked at it under that
    /// lock before has begun the closing before, so that is seen here.
    pub(crate) fn emptied(&self) {
        if self.has_begun() {
            self.changed.notify_waiters();
        }
    }

    /// Waits until nothing is being released, and the tables are empty.
    pub(crate) async fn ends(&self, empty: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if empty() && self.releasing.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}
