use crate::closing::Closing;
use fencelock_core::{HolderId, Key, TokenBlock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The waiting attempts of one client, by key and in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Waiters {
    lines: Mutex<BTreeMap<(Key, u64), Arc<Waiter>>>,
    arrivals: AtomicU64,
    closing: Arc<Closing>,
}

/// One waiting attempt: a bell to wake it, and what it was handed.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) holder: HolderId,
    pub(crate) bell: Notify,
    /// Whether it wants to know of changes; one that asks at times of its own does not.
    wakes: bool,
    /// Its place in the lines.
    place: (Key, u64),
    handed: Mutex<Option<Handed>>,
}

/// A hand-off as the message told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) tokens: TokenBlock,
    pub(crate) claim_ttl: Duration,
}

impl Waiter {
    pub(crate) fn take_handed(&self) -> Option<Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Waiters {
    pub(crate) fn new(closing: Arc<Closing>) -> Self {
        Self { lines: Mutex::default(), arrivals: AtomicU64::new(0), closing }
    }

    pub(crate) fn join(&self, key: &Key, holder: HolderId, wakes: bool) -> Arc<Waiter> {
        let place = (key.clone(), self.arrivals.fetch_add(1, Ordering::Relaxed));
        let (bell, handed) = (Notify::new(), Mutex::new(None));
        let waiter = Arc::new(Waiter { holder, bell, wakes, place: place.clone(), handed });
        self.lines().insert(place, Arc::clone(&waiter));
        waiter
    }

    pub(crate) fn leave(&self, waiter: &Waiter) {
        self.lines().remove(&waiter.place);
        self.closing.emptied();
    }

    /// Says whether anybody here waits under that holder.
    pub(crate) fn hand(&self, key: &Key, holder: HolderId, handed: Handed) -> bool {
        // Served in order, so whoever is handed the key mostly stands in front.
        let waiter = line(&self.lines(), key).find(|waiter| waiter.holder == holder).cloned();
        let Some(waiter) = waiter else { return false };
        *waiter.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(handed);
        waiter.bell.notify_one();
        true
    }

    /// Wakes the first in line for a key: one asks, the others are served when it is done.
    pub(crate) fn nudge(&self, key: &Key) {
        if let Some(waiter) = line(&self.lines(), key).find(|waiter| waiter.wakes) {
            waiter.bell.notify_one();
        }
    }

    /// Wakes everybody.
    pub(crate) fn nudge_all(&self) {
        for waiter in self.lines().values() {
            waiter.bell.notify_one();
        }
    }

    /// How many wait for a key, and want to know of changes.
    pub(crate) fn in_line(&self, key: &Key) -> usize {
        line(&self.lines(), key).filter(|waiter| waiter.wakes).count()
    }

    /// Whether nobody waits or asks.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<(Key, u64), Arc<Waiter>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line<'a>(lines: &'a BTreeMap<(Key, u64), Arc<Waiter>>, key: &Key) -> impl Iterator<Item = &'a Arc<Waiter>> {
    lines.range((key.clone(), 0)..=(key.clone(), u64::MAX)).map(|(_, waiter)| waiter)
}
