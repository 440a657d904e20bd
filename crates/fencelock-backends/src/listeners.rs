use fencelock_core::{Event, Listener};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The listeners of a backend, held weakly: a dropped client receives no more events.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Vec<Weak<dyn Listener>>>);

impl Listeners {
    pub(crate) fn add(&self, listener: &Arc<dyn Listener>) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    /// Must not be called under a lock that a listener might take.
    pub(crate) fn send(&self, event: &Event) {
        let listeners: Vec<_> = {
            let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            listener.event(event);
        }
    }
}
