use fencelock_core::{Key, hash_slot};
use redis::{PushInfo, PushKind, Value};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

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
            let mut state = self.state();
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
        let mut state = self.state();
        (state.has_ended, state.slots) = (true, HashMap::new());
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    pub(crate) fn has(&self, slot: u16) -> bool {
        self.state().slots.contains_key(&slot)
    }

    /// Records that a client waits for this key.
    pub(crate) fn add(&self, slot: u16, key: &Key) {
        let mut state = self.state();
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
        let mut state = self.state();
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

    fn state(&self) -> MutexGuard<'_, Subscriptions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn slot_of_channel(name: &Value) -> Option<u16> {
    let Value::BulkString(name) = name else { return None };
    let name = std::str::from_utf8(name).ok()?;
    name.ends_with('}').then(|| hash_slot(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::number_in_slot;
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
