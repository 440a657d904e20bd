//! Turns notifications into events, and asks for hand-offs where none arrive.

use crate::calls;
use fencelock_core::{Event, HolderId, Key, Listeners};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the connections of a client have in common.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    pub(crate) listeners: Listeners,
    /// What a failover may lose was said.
    pub(crate) has_warned: AtomicBool,
    /// The last request that could hand a key over did so.
    pub(crate) hands_over: AtomicBool,
    /// Those that wait behind a pooler, which delivers no notifications.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    keys: HashMap<HolderId, Key>,
    /// A task asks for their hand-offs until there are none.
    is_polled: bool,
}

impl Hub {
    /// A payload proves nothing by itself: see [`Event::Handed`].
    pub(crate) fn notified(&self, payload: &str) {
        if let Some(event) = calls::event(payload) {
            self.listeners.send(&event);
        }
    }

    /// What was sent to this client since may be lost.
    pub(crate) fn lost_connection(&self, was_used: bool) {
        if was_used || !self.lock().keys.is_empty() {
            self.listeners.send(&Event::Reset);
        }
    }

    /// The holder waits. `true` if a task has to be started that asks for its hand-off.
    pub(crate) fn waits(&self, holder: HolderId, key: &Key) -> bool {
        let mut waiting = self.lock();
        waiting.keys.entry(holder).or_insert_with(|| key.clone());
        !std::mem::replace(&mut waiting.is_polled, true)
    }

    /// The holder waits no longer.
    pub(crate) fn forget(&self, holder: &HolderId) {
        self.lock().keys.remove(holder);
    }

    /// Those that wait; none ends the task.
    pub(crate) fn waiters(&self) -> Vec<(HolderId, Key)> {
        let mut waiting = self.lock();
        waiting.is_polled = !waiting.keys.is_empty();
        waiting.keys.iter().map(|(holder, key)| (*holder, key.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
