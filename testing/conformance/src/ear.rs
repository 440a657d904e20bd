use fencelock_core::{Event, Listener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Keeps every event it is told.
#[derive(Debug)]
pub(crate) struct Ear {
    heard: watch::Sender<Vec<Event>>,
}

impl Ear {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { heard: watch::Sender::new(Vec::new()) })
    }

    /// The first event that `wanted` makes something of, past or yet to come; `None` if `patience` is over before.
    pub(crate) async fn hears<T>(&self, patience: Duration, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let mut heard = self.heard.subscribe();
        let arrived = heard.wait_for(|events| events.iter().any(|event| wanted(event).is_some()));
        let events = tokio::time::timeout(patience, arrived).await.ok()?.ok()?;
        events.iter().find_map(&wanted)
    }

    /// For messages.
    pub(crate) fn so_far(&self) -> Vec<Event> {
        self.heard.borrow().clone()
    }
}

impl Listener for Ear {
    fn event(&self, event: &Event) {
        self.heard.send_modify(|heard| heard.push(event.clone()));
    }
}
