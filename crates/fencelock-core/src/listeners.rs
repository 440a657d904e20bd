use crate::{Event, Listener};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The listeners of a backend, for its implementation. They are held weakly: a dropped client receives no more events.
#[derive(Debug, Default)]
pub struct Listeners(Mutex<Vec<Weak<dyn Listener>>>);

impl Listeners {
    /// Sends all further events to this listener too.
    pub fn add(&self, listener: &Arc<dyn Listener>) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    /// Calls every listener. It must not be called under a lock that a listener might take.
    pub fn send(&self, event: &Event) {
        let listeners: Vec<_> = {
            let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            listener.event(event);
        }
    }
}

/// A backend that is made of others sends their events on.
impl Listener for Listeners {
    fn event(&self, event: &Event) {
        self.send(event);
    }
}
