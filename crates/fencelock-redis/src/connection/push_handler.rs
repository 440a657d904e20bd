use crate::hash_slot::hash_slot;
use crate::scripts::message::{self, Grant};
use crate::scripts::quarantine::UNKNOWN_RUN_ID;
use crate::scripts::side_key::key_of_side_key;
use crate::scripts::wire::WIRE;
use crate::sentinel::Mastership;
use crate::url::target::Target;
use fencelock_core::{Event, Key, Listeners, lock};
use redis::{PushInfo, PushKind, Value};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

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
        let (key, grant) = message::read(text)?;
        let key = self.key(key)?;
        let Some(Grant { server: from, holder, tokens, lease }) = grant else {
            self.warn_of_another_version(&key);
            return Some(Event::Changed { key });
        };
        let from_here = from == server.run_id() && from != UNKNOWN_RUN_ID && server.counts();
        let claim_ttl = if self.must_poll || !from_here { Duration::ZERO } else { lease };
        Some(Event::Handed { key, holder, tokens, claim_ttl })
    }

    /// Logs it once: it concerns the versions in use, not one lock.
    fn warn_of_another_version(&self, key: &Key) {
        if !self.other_version_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                node = self.node,
                "a message about {key:?} has another version than {WIRE}, so this client polls when it receives one. The lock is not \
                 affected, but each hand-off by a client of that version costs a request: use one version of fencelock for all"
            );
        }
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

/// The maximum number of keys that are stored for each slot, so that their waiters poll at once when the slot is moved. Other
/// waiters poll at their usual interval.
const KEYS_MAX: usize = 64;
/// A client with more slots unsubscribes from those in which it no longer waits.
const SLOTS_MAX: usize = 256;
/// Many times the poll interval of a waiter.
const IDLE: Duration = Duration::from_secs(30);

/// The slots whose channels one connection is subscribed to, and the keys with waiters in each.
///
/// The confirmation of a subscription is matched by the name of its channel: the driver takes the unsolicited message that a slot
/// was moved for the reply to the next request. So the connection is not used for other important requests.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    state: Mutex<Subscriptions>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Subscriptions {
    has_ended: bool,
    slots: HashMap<u16, SlotWaiters>,
}

#[derive(Debug)]
struct SlotWaiters {
    keys: HashSet<Key>,
    used: Instant,
}

impl Subscribed {
    /// Handles a message about a subscription. Returns the keys whose channel has ended because their slot was moved.
    pub(crate) fn pushed(&self, info: &PushInfo) -> Vec<Key> {
        let Some(slot) = info.data.first().and_then(slot_of_channel) else { return Vec::new() };
        let ended = {
            let mut state = lock(&self.state);
            if info.kind == PushKind::SSubscribe && !state.has_ended {
                state.slots.entry(slot).or_insert_with(|| SlotWaiters { keys: HashSet::new(), used: Instant::now() });
                None
            } else {
                state.slots.remove(&slot)
            }
        };
        self.changed.notify_waiters();
        ended.into_iter().flat_map(|slot| slot.keys).collect()
    }

    /// Clears all subscriptions after the connection was lost.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        (state.has_ended, state.slots) = (true, HashMap::new());
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).has_ended
    }

    pub(crate) fn has(&self, slot: u16) -> bool {
        lock(&self.state).slots.contains_key(&slot)
    }

    /// Records that a client waits for this key.
    pub(crate) fn add(&self, slot: u16, key: &Key) {
        let mut state = lock(&self.state);
        let Some(slot) = state.slots.get_mut(&slot) else { return };
        slot.used = Instant::now();
        if slot.keys.contains(key) {
            return;
        }
        if slot.keys.len() >= KEYS_MAX
            && let Some(any) = slot.keys.iter().next().cloned()
        {
            slot.keys.remove(&any);
        }
        slot.keys.insert(key.clone());
    }

    /// Removes slots without a waiter, if there are very many.
    pub(crate) fn idle(&self) -> Vec<u16> {
        let mut state = lock(&self.state);
        if state.slots.len() < SLOTS_MAX {
            return Vec::new();
        }
        let idle = state.slots.iter().filter(|(_, slot)| slot.used.elapsed() > IDLE).map(|(number, _)| *number);
        let idle: Vec<u16> = idle.collect();
        for slot in &idle {
            state.slots.remove(slot);
        }
        idle
    }

    pub(crate) async fn wait_for(&self, slot: u16) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.has(slot) {
                return;
            }
            changed.await;
        }
    }
}

fn slot_of_channel(name: &Value) -> Option<u16> {
    let Value::BulkString(name) = name else { return None };
    let name = std::str::from_utf8(name).ok()?;
    name.ends_with('}').then(|| hash_slot(name))
}

// The server of a connection.

/// The server that messages of a connection come from.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// Its run id, empty until it is known.
    pub(crate) run_id: OnceLock<String>,
    /// With sentinels, whether they still name it as the master.
    pub(crate) mastership: Option<Arc<Mastership>>,
    /// The subscriptions of a connection with sharded channels.
    pub(crate) shards: Option<Arc<Subscribed>>,
}

impl Origin {
    /// Without its run id, which is set later.
    pub(crate) fn of(mastership: Option<&Arc<Mastership>>) -> Self {
        Self { mastership: mastership.cloned(), ..Self::default() }
    }

    pub(crate) fn run_id(&self) -> &str {
        self.run_id.get().map_or(UNKNOWN_RUN_ID, String::as_str)
    }

    /// Whether a message that arrives now is valid.
    pub(crate) fn counts(&self) -> bool {
        self.mastership.as_ref().is_none_or(|mastership| mastership.counts())
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
        struct EventLog(Mutex<Vec<Event>>);
        impl fencelock_core::Listener for EventLog {
            fn event(&self, event: &Event) {
                self.0.lock().unwrap().push(event.clone());
            }
        }
        let (handler, events) = (push_handler("p:"), Arc::new(EventLog::default()));
        let listener: Arc<dyn fencelock_core::Listener> = events.clone();
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

#[cfg(test)]
mod subscribed_tests {
    use super::*;
    use crate::hash_slot::number_in_slot;
    use std::sync::Arc;

    fn pushed(kind: PushKind, channel: &str) -> PushInfo {
        PushInfo { kind, data: vec![Value::BulkString(channel.into()), Value::Int(1)] }
    }

    #[test]
    fn a_moved_slot_returns_its_keys() {
        let (subscribed, key) = (Subscribed::default(), Key::new("foo").unwrap());
        let channel = format!("fencelock:wake:ab:12345678:{{{}}}", number_in_slot(hash_slot("foo")));
        assert!(subscribed.pushed(&pushed(PushKind::SSubscribe, &channel)).is_empty());
        subscribed.add(hash_slot("foo"), &key);
        subscribed.add(hash_slot("bar"), &Key::new("bar").unwrap());
        assert!(subscribed.has(hash_slot("foo")) && !subscribed.has(hash_slot("bar")));
        assert!(subscribed.pushed(&pushed(PushKind::SUnsubscribe, "something else")).is_empty());
        assert_eq!(subscribed.pushed(&pushed(PushKind::SUnsubscribe, &channel)), [key]);
        assert!(!subscribed.has(hash_slot("foo")));
    }

    #[test]
    fn the_stored_keys_are_bounded() {
        let subscribed = Subscribed::default();
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{1}"));
        for number in 0..1000 {
            subscribed.add(hash_slot("1"), &Key::new(format!("{{1}}{number}")).unwrap());
        }
        assert_eq!(subscribed.pushed(&pushed(PushKind::SUnsubscribe, "c:{1}")).len(), KEYS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn slots_without_waiters_are_removed_when_there_are_very_many() {
        let subscribed = Subscribed::default();
        for slot in 0..1000 {
            subscribed.pushed(&pushed(PushKind::SSubscribe, &format!("c:{{{}}}", number_in_slot(slot))));
        }
        assert!(subscribed.idle().is_empty(), "there may be waiters");
        tokio::time::advance(IDLE).await;
        subscribed.add(7, &Key::new(number_in_slot(7).to_string()).unwrap());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(subscribed.idle().len(), 999);
        assert!(subscribed.has(7) && !subscribed.has(8));
    }

    #[tokio::test]
    async fn a_confirmation_ends_the_wait() {
        let subscribed = Arc::new(Subscribed::default());
        let waiting = tokio::spawn({
            let subscribed = Arc::clone(&subscribed);
            async move { subscribed.wait_for(hash_slot("1")).await }
        });
        tokio::task::yield_now().await;
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{2}"));
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{1}"));
        waiting.await.unwrap();
        subscribed.end();
        subscribed.pushed(&pushed(PushKind::SSubscribe, "c:{1}"));
        assert!(subscribed.has_ended() && !subscribed.has(hash_slot("1")));
    }
}
