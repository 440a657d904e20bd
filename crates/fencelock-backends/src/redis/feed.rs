use super::guard::NOBODY;
use super::target::Target;
use crate::sinks::Sinks;
use fencelock_core::{Event, FencingToken, HolderId, Key, TokenBlock};
use redis::{PushInfo, PushKind, Value};
use std::time::Duration;

/// Turns what a server sends by itself into events.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) sinks: Sinks,
    prefix: String,
    /// Whether a grant counts only when replicas have confirmed it; then a message proves nothing.
    must_ask: bool,
}

impl Feed {
    pub(crate) fn new(target: &Target) -> Self {
        Self { sinks: Sinks::default(), prefix: target.prefix.clone(), must_ask: target.acks.is_some() }
    }

    /// A push message of a RESP3 connection.
    /// `server` is the run id of the one that it comes from.
    pub(crate) fn push(&self, info: &PushInfo, server: &str) {
        match info.kind {
            PushKind::Message => {
                if let Some(Value::BulkString(payload)) = info.data.get(1) {
                    self.message(payload, server);
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
    pub(crate) fn message(&self, payload: &[u8], server: &str) {
        if let Some(event) = std::str::from_utf8(payload).ok().and_then(|text| self.handed(text, server)) {
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

    /// `<holder id> <last token> <how many> <lease, ms> <run id> <wire key>`, as `advance` in the scripts writes it.
    ///
    /// Only the server that this client waits at can grant it anything. After a switch of roles a client of the old master
    /// hears what the new one publishes, for replicas pass messages on; then, and where no run id is known, it must ask.
    fn handed(&self, text: &str, server: &str) -> Option<Event> {
        let mut words = text.splitn(6, ' ');
        let holder: HolderId = words.next()?.parse().ok()?;
        let last: FencingToken = words.next()?.parse().ok()?;
        let tokens = TokenBlock::ending(last, words.next()?.parse().ok()?);
        let lease = Duration::from_millis(words.next()?.parse().ok()?);
        let from_here = words.next()? == server && server != NOBODY;
        let claim_ttl = if self.must_ask || !from_here { Duration::ZERO } else { lease };
        let key = self.key(words.next()?)?;
        Some(Event::Handed { key, holder, tokens, claim_ttl })
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
        Feed { sinks: Sinks::default(), prefix: prefix.into(), must_ask: false }
    }

    #[test]
    fn a_hand_off_message_is_read_with_spaces_in_its_key() {
        let id = "ab".repeat(16);
        let event = feed("p:").handed(&format!("{id} 1780000000000001 64 3000 5e4f p:nightly report"), "5e4f");
        let expected = Event::Handed {
            key: Key::new("nightly report").unwrap(),
            holder: id.parse().unwrap(),
            tokens: TokenBlock::ending(
                FencingToken::new(1_780_000_000_000_001).unwrap(),
                std::num::NonZeroU32::new(64).unwrap(),
            ),
            claim_ttl: Duration::from_secs(3),
        };
        assert_eq!(event, Some(expected));
    }

    #[test]
    fn a_hand_off_that_replicas_must_confirm_proves_nothing() {
        let feed = Feed { must_ask: true, ..feed("") };
        let event = feed.handed(&format!("{} 1780000000000001 1 3000 5e4f k", "ab".repeat(16)), "5e4f");
        assert!(matches!(event, Some(Event::Handed { claim_ttl: Duration::ZERO, .. })), "{event:?}");
    }

    #[test]
    fn a_hand_off_of_another_server_proves_nothing() {
        let message = |server| format!("{} 1780000000000001 1 3000 {server} k", "ab".repeat(16));
        for (said, heard_at) in [("5e4f", "77aa"), ("5e4f", NOBODY), (NOBODY, NOBODY)] {
            let event = feed("").handed(&message(said), heard_at);
            assert!(
                matches!(event, Some(Event::Handed { claim_ttl: Duration::ZERO, .. })),
                "{said} {heard_at} {event:?}"
            );
        }
    }

    #[test]
    fn anything_else_on_the_channel_is_ignored() {
        let id = "ab".repeat(16);
        for rest in
            ["", "0 1 1 s p:k", "1 0 1 s p:k", "1 1 p:k", "1 1 1 p:k", "1 1 1 s k", "9007199254740992 1 1 s p:k"]
        {
            let text = format!("{id} {rest}");
            assert_eq!(feed("p:").handed(&text, "s"), None, "{text}");
        }
        for text in ["", "hello", "zz 1 1 2 s p:k"] {
            assert_eq!(feed("p:").handed(text, "s"), None, "{text}");
        }
    }
}
