use crate::{Event, Listener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The listeners of a backend, for its implementation. They are held weakly: a dropped client receives no more events.
#[derive(Debug, Default)]
pub struct Listeners(Mutex<Vec<Weak<dyn Listener>>>);

impl Listeners {
    /// Sends all further events to this listener too.
    pub fn add(&self, listener: &Arc<dyn Listener>) {
        let mut listeners = lock(&self.0);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    /// Calls every listener. It must not be called under a lock that a listener might take.
    pub fn send(&self, event: &Event) {
        let listeners: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
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

/// Locks a mutex whose data no panic leaves half changed, as all of this project are.
#[doc(hidden)]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
