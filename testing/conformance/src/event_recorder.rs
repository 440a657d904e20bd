use fencelock_core::{Event, Listener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Records every event.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    events: watch::Sender<Vec<Event>>,
}

impl EventRecorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { events: watch::Sender::new(Vec::new()) })
    }

    /// The first past or future event that `wanted` accepts; `None` after `patience`.
    pub(crate) async fn wait_for<T>(&self, patience: Duration, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let mut heard = self.events.subscribe();
        let arrived = heard.wait_for(|events| events.iter().any(|event| wanted(event).is_some()));
        let events = tokio::time::timeout(patience, arrived).await.ok()?.ok()?;
        events.iter().find_map(&wanted)
    }

    /// The events for messages.
    pub(crate) fn recorded(&self) -> Vec<Event> {
        self.events.borrow().clone()
    }
}

impl Listener for EventRecorder {
    fn event(&self, event: &Event) {
        self.events.send_modify(|heard| heard.push(event.clone()));
    }
}
