use fencelock_core::{FencingToken, HolderId, Key};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The waiting attempts of one client, by key and in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lines: Mutex<HashMap<Key, VecDeque<Arc<Waiter>>>>,
}

/// One waiting attempt: a bell to wake it, and what it was handed.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    pub(crate) bell: Notify,
    /// Whether it wants to know of changes; one that asks at times of its own does not.
    wakes: bool,
    handed: Mutex<Option<Handed>>,
}

/// A hand-off as the message told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) fence: FencingToken,
    pub(crate) claim_ttl: Duration,
}

impl Waiter {
    pub(crate) fn take_handed(&self) -> Option<Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Waiters {
    pub(crate) fn join(&self, key: &Key, holder: HolderId, wakes: bool) -> Arc<Waiter> {
        let handed = Mutex::new(None);
        let waiter = Arc::new(Waiter { key: key.clone(), holder, bell: Notify::new(), wakes, handed });
        self.lines().entry(key.clone()).or_default().push_back(Arc::clone(&waiter));
        waiter
    }

    pub(crate) fn leave(&self, waiter: &Waiter) {
        let mut lines = self.lines();
        let Some(line) = lines.get_mut(&waiter.key) else { return };
        // Served in order, so the one that leaves mostly stands in front.
        if let Some(place) = line.iter().position(|w| w.holder == waiter.holder) {
            line.remove(place);
        }
        if line.is_empty() {
            lines.remove(&waiter.key);
        }
    }

    /// Says whether anybody here waits under that holder.
    pub(crate) fn hand(&self, key: &Key, holder: HolderId, handed: Handed) -> bool {
        let waiter = self.lines().get(key).and_then(|line| line.iter().find(|w| w.holder == holder).cloned());
        let Some(waiter) = waiter else { return false };
        *waiter.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(handed);
        waiter.bell.notify_one();
        true
    }

    /// Wakes the first in line for a key: one asks, the others are served when it is done.
    pub(crate) fn nudge(&self, key: &Key) {
        if let Some(waiter) = self.lines().get(key).and_then(|line| line.iter().find(|w| w.wakes)) {
            waiter.bell.notify_one();
        }
    }

    /// Wakes everybody.
    pub(crate) fn nudge_all(&self) {
        for waiter in self.lines().values().flatten() {
            waiter.bell.notify_one();
        }
    }

    /// Whether nobody waits or asks.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<Arc<Waiter>>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
