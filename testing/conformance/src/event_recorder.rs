use fencelock_core::{Backend, Event, Listener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Records every event of a backend that it listens to.
#[derive(Debug)]
pub struct EventRecorder {
    events: watch::Sender<Vec<Event>>,
}

impl EventRecorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { events: watch::Sender::new(Vec::new()) })
    }

    /// Records the events of `backend` while the value is kept.
    pub fn listening_to(backend: &dyn Backend) -> Arc<Self> {
        let recorder = Self::new();
        let listener: Arc<dyn Listener> = recorder.clone();
        backend.listen(listener);
        recorder
    }

    /// The first past or future event that `wanted` accepts; `None` after `limit`.
    pub async fn wait_for<T>(&self, limit: Duration, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let mut events = self.events.subscribe();
        let arrived = events.wait_for(|events| events.iter().any(|event| wanted(event).is_some()));
        let events = tokio::time::timeout(limit, arrived).await.ok()?.ok()?;
        events.iter().find_map(&wanted)
    }

    /// The events so far.
    pub fn recorded(&self) -> Vec<Event> {
        self.events.borrow().clone()
    }
}

impl Listener for EventRecorder {
    fn event(&self, event: &Event) {
        self.events.send_modify(|events| events.push(event.clone()));
    }
}
