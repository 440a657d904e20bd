use fencelock_core::{Event, Sink};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Everybody who listens to a backend, held weakly: a client that is gone stops listening.
#[derive(Debug, Default)]
pub(crate) struct Sinks(Mutex<Vec<Weak<dyn Sink>>>);

impl Sinks {
    pub(crate) fn add(&self, sink: &Arc<dyn Sink>) {
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|sink| sink.strong_count() > 0);
        sinks.push(Arc::downgrade(sink));
    }

    /// Must not be called under a lock that a sink might take.
    pub(crate) fn send(&self, event: &Event) {
        let sinks: Vec<_> = {
            let sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            sinks.iter().filter_map(Weak::upgrade).collect()
        };
        for sink in sinks {
            sink.event(event);
        }
    }
}
