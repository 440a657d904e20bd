use super::origin::Origin;
use crate::scripts::message::{Grant, Message};
use crate::scripts::quarantine::UNKNOWN_RUN_ID;
use crate::scripts::wire::WIRE;
use crate::url::target::Target;
use fencelock_core::{Event, Key, Listeners, key_of_side_key};
use redis::{PushInfo, PushKind, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Converts the push messages of a server into events.
#[derive(Debug)]
pub(crate) struct PushHandler {
    pub(crate) listeners: Listeners,
    /// The server, for the log.
    node: String,
    prefix: String,
    /// Whether replicas must confirm a grant; then a message alone does not prove it.
    must_poll: bool,
    /// Whether a message of another version has been logged.
    other_version_logged: AtomicBool,
}

impl PushHandler {
    pub(crate) fn new(target: &Target) -> Self {
        let (node, prefix, must_poll) = (target.name.clone(), target.prefix.clone(), target.acks.is_some());
        let other_version_logged = AtomicBool::new(false);
        Self { listeners: Listeners::default(), node, prefix, must_poll, other_version_logged }
    }

    /// A push message of a RESP3 connection to `server`.
    pub(crate) fn push(&self, info: &PushInfo, server: &Origin) {
        match info.kind {
            PushKind::Message | PushKind::SMessage => {
                if let Some(Value::BulkString(payload)) = info.data.get(1) {
                    self.message(payload, server);
                }
            }
            PushKind::Invalidate => match info.data.first() {
                Some(Value::Array(keys)) => keys.iter().for_each(|key| self.invalidated(key)),
                // The whole database was flushed.
                _ => self.listeners.send(&Event::Reset),
            },
            PushKind::SSubscribe | PushKind::SUnsubscribe => {
                let ended = server.shards.iter().flat_map(|subscribed| subscribed.pushed(info));
                ended.for_each(|key| self.changed(&key));
            }
            PushKind::Disconnection => {
                if let Some(subscribed) = &server.shards {
                    subscribed.end();
                }
                self.reset();
            }
            _ => {}
        }
    }

    /// A message on the channel of this client.
    pub(crate) fn message(&self, payload: &[u8], server: &Origin) {
        if let Some(event) = std::str::from_utf8(payload).ok().and_then(|text| self.event_of(text, server)) {
            self.listeners.send(&event);
        } else {
            tracing::debug!(payload = %String::from_utf8_lossy(payload), "not a message of any version");
        }
    }

    pub(crate) fn reset(&self) {
        self.listeners.send(&Event::Reset);
    }

    pub(crate) fn changed(&self, key: &Key) {
        self.listeners.send(&Event::Changed { key: key.clone() });
    }

    /// The event of a message; `None` if no waiter of this client needs it.
    ///
    /// Only the server at which this client waits can grant a lock. After a role switch, a client of the old master
    /// receives the messages of the new one, because replicas forward them; then, and if the run id is unknown, the client
    /// must poll.
    fn event_of(&self, text: &str, server: &Origin) -> Option<Event> {
        match Message::read(text) {
            Message::Grant(Grant { server: from, holder, tokens, lease, key }) => {
                let from_here = from == server.run_id() && from != UNKNOWN_RUN_ID && server.counts();
                let claim_ttl = if self.must_poll || !from_here { Duration::ZERO } else { lease };
                Some(Event::Handed { key: self.key(key)?, holder, tokens, claim_ttl })
            }
            Message::Hint { key } => {
                let key = self.key(key)?;
                self.warn_of_another_version(&key);
                Some(Event::Changed { key })
            }
            Message::Garbage => None,
        }
    }

    /// Logs it once: it concerns the versions in use, not one lock.
    fn warn_of_another_version(&self, key: &Key) {
        if self.other_version_logged.swap(true, Ordering::Relaxed) {
            tracing::debug!(node = self.node, %key, "a message of another version: polling");
            return;
        }
        tracing::warn!(
            node = self.node,
            "a message about {key:?} has another version than {WIRE}, so this client polls when it receives one. The lock is not \
             affected, but each hand-off by a client of that version costs a request: use one version of fencelock for all"
        );
    }

    fn invalidated(&self, key: &Value) {
        let Value::BulkString(key) = key else { return };
        let Ok(key) = std::str::from_utf8(key) else { return };
        if let Some(key) = self.key(key) {
            self.changed(&key);
        } else if let Some(key) = key_of_side_key(key, "line").and_then(|key| self.key(&key)) {
            // A renewal reads the queue. The other side keys that scripts read do not matter.
            self.listeners.send(&Event::Queued { key });
        }
    }

    fn key(&self, redis_key: &str) -> Option<Key> {
        Key::new(redis_key.strip_prefix(&self.prefix)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_handler(prefix: &str) -> PushHandler {
        PushHandler::new(&Target::parse(&format!("redis://h?prefix={prefix}")).unwrap())
    }

    fn origin(run_id: &str) -> Origin {
        let origin = Origin::default();
        origin.run_id.set(run_id.to_owned()).unwrap();
        origin
    }

    fn message(server: &str) -> String {
        format!("1 {server} {} 1780000000000001 64 3000\tp:k", "ab".repeat(16))
    }

    fn claim_ttl(event: Option<Event>) -> Duration {
        let Some(Event::Handed { key, claim_ttl, .. }) = event else { panic!("{event:?}") };
        assert_eq!(key.as_str(), "k");
        claim_ttl
    }

    #[test]
    fn a_hand_off_of_this_server_gives_its_lease() {
        assert_eq!(claim_ttl(push_handler("p:").event_of(&message("5e4f"), &origin("5e4f"))), Duration::from_secs(3));
    }

    #[test]
    fn a_hand_off_that_replicas_must_confirm_proves_nothing() {
        let push_handler = PushHandler { must_poll: true, ..push_handler("p:") };
        assert_eq!(claim_ttl(push_handler.event_of(&message("5e4f"), &origin("5e4f"))), Duration::ZERO);
    }

    #[test]
    fn a_hand_off_of_another_server_proves_nothing() {
        for (sent_by, received_from) in [("5e4f", "77aa"), ("5e4f", UNKNOWN_RUN_ID), (UNKNOWN_RUN_ID, UNKNOWN_RUN_ID)] {
            assert_eq!(
                claim_ttl(push_handler("p:").event_of(&message(sent_by), &origin(received_from))),
                Duration::ZERO,
                "{sent_by} {received_from}"
            );
        }
    }

    #[test]
    fn a_message_of_another_version_makes_the_waiters_of_its_key_poll() {
        let hint = Event::Changed { key: Key::new("k").unwrap() };
        let id = "ab".repeat(16);
        let event = push_handler("p:").event_of(&format!("2 5e4f {id} 1 1 3000 r\tp:k"), &origin("5e4f"));
        assert_eq!(event, Some(hint));
    }

    #[test]
    fn a_change_of_a_queue_announces_a_waiter() {
        #[derive(Debug, Default)]
        struct EventLog(std::sync::Mutex<Vec<Event>>);
        impl fencelock_core::Listener for EventLog {
            fn event(&self, event: &Event) {
                self.0.lock().unwrap().push(event.clone());
            }
        }
        let (handler, events) = (push_handler("p:"), std::sync::Arc::new(EventLog::default()));
        let listener: std::sync::Arc<dyn fencelock_core::Listener> = events.clone();
        handler.listeners.add(&listener);
        for name in ["p:k", "fencelock:{p:k}:line", "fencelock:{p:k}:fence", "fencelock:{q:k}:line", "other"] {
            handler.invalidated(&Value::BulkString(name.into()));
        }
        let key = Key::new("k").unwrap();
        assert_eq!(*events.0.lock().unwrap(), [Event::Changed { key: key.clone() }, Event::Queued { key }]);
    }

    #[test]
    fn anything_else_on_the_channel_is_ignored() {
        for text in ["", "hello", "2 a b\tk", "2 a b\tp:", &message("5e4f").replace("p:k", "k")] {
            assert_eq!(push_handler("p:").event_of(text, &origin("5e4f")), None, "{text}");
        }
    }
}
