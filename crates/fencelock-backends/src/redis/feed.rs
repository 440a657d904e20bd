use super::target::Target;
use crate::sinks::Sinks;
use fencelock_core::{Event, FencingToken, HolderId, Key};
use redis::{PushInfo, PushKind, Value};
use std::time::Duration;

/// Turns what a server sends by itself into events.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) sinks: Sinks,
    prefix: String,
}

impl Feed {
    pub(crate) fn new(target: &Target) -> Self {
        Self { sinks: Sinks::default(), prefix: target.prefix.clone() }
    }

    /// A push message of a RESP3 connection.
    pub(crate) fn push(&self, info: &PushInfo) {
        match info.kind {
            PushKind::Message => {
                if let Some(Value::BulkString(payload)) = info.data.get(1) {
                    self.message(payload);
                }
            }
            PushKind::Invalidate => match info.data.first() {
                Some(Value::Array(keys)) => keys.iter().for_each(|key| self.invalidated(key)),
                // The whole database was flushed.
                _ => self.sinks.send(&Event::Reset),
            },
            PushKind::Disconnection => self.reset(),
            _ => {}
        }
    }

    /// A message on the channel of this client.
    pub(crate) fn message(&self, payload: &[u8]) {
        if let Some(event) = std::str::from_utf8(payload).ok().and_then(|text| self.handed(text)) {
            self.sinks.send(&event);
        } else {
            tracing::debug!(payload = %String::from_utf8_lossy(payload), "message not understood");
        }
    }

    pub(crate) fn reset(&self) {
        self.sinks.send(&Event::Reset);
    }

    pub(crate) fn changed(&self, key: &Key) {
        self.sinks.send(&Event::Changed { key: key.clone() });
    }

    /// `<holder id> <fence> <lease, ms> <wire key>`, as `advance` in the scripts writes it.
    fn handed(&self, text: &str) -> Option<Event> {
        let mut words = text.splitn(4, ' ');
        let holder: HolderId = words.next()?.parse().ok()?;
        let fence: FencingToken = words.next()?.parse().ok()?;
        let claim_ttl = Duration::from_millis(words.next()?.parse().ok()?);
        let key = self.key(words.next()?)?;
        Some(Event::Handed { key, holder, fence, claim_ttl })
    }

    fn invalidated(&self, key: &Value) {
        let Value::BulkString(key) = key else { return };
        // Side keys are read by the same scripts, so they are told of too; as keys of locks they are refused here.
        if let Some(key) = std::str::from_utf8(key).ok().and_then(|key| self.key(key)) {
            self.changed(&key);
        }
    }

    fn key(&self, wire: &str) -> Option<Key> {
        Key::new(wire.strip_prefix(&self.prefix)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(prefix: &str) -> Feed {
        Feed { sinks: Sinks::default(), prefix: prefix.into() }
    }

    #[test]
    fn a_hand_off_message_is_read_with_spaces_in_its_key() {
        let id = "ab".repeat(16);
        let event = feed("p:").handed(&format!("{id} 1780000000000001 3000 p:nightly report"));
        let expected = Event::Handed {
            key: Key::new("nightly report").unwrap(),
            holder: id.parse().unwrap(),
            fence: FencingToken::new(1_780_000_000_000_001).unwrap(),
            claim_ttl: Duration::from_secs(3),
        };
        assert_eq!(event, Some(expected));
    }

    #[test]
    fn anything_else_on_the_channel_is_ignored() {
        for text in
            ["", "hello", "zz 1 2 k", &format!("{} 0 1 k", "ab".repeat(16)), &format!("{} 1 1 k", "ab".repeat(16))]
        {
            assert_eq!(feed("p:").handed(text), None, "{text}");
        }
    }
}
