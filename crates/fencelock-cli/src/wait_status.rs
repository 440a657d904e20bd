use crate::text::{ordinal, plain};
use fencelock::contract::Occupied;
use fencelock::{Holders, Holding, Waiting};
use std::time::Duration;

/// The status of a wait, for queued waiters and for pollers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitStatus {
    pub(crate) key: String,
    /// The number of waiters ahead; `None` without a queue, and for pollers.
    pub(crate) ahead: Option<u32>,
    pub(crate) holders: Holders,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) held_for: Option<Duration>,
    pub(crate) waited: Duration,
}

impl WaitStatus {
    /// The status of a poller that has waited for `waited`.
    pub(crate) fn of_watcher(held: &Holding, waited: Duration) -> Self {
        let occupied = Occupied::from(held.clone());
        Self {
            key: held.key.to_string(),
            ahead: None,
            holders: occupied.holders,
            expires_in: occupied.expiry.span(),
            held_for: occupied.held_for,
            waited,
        }
    }

    /// `2nd in the queue, held by web-1:4242 (nightly)`
    pub(crate) fn position(&self) -> String {
        let line =
            self.ahead.map(|ahead| format!("{} in the queue, ", ordinal(ahead.saturating_add(1)))).unwrap_or_default();
        plain(&format!("{line}held by {}", self.holders))
    }
}

impl From<&Waiting> for WaitStatus {
    fn from(waiting: &Waiting) -> Self {
        Self {
            key: waiting.key.to_string(),
            ahead: waiting.ahead,
            holders: waiting.holders.clone(),
            expires_in: waiting.expiry.span(),
            held_for: waiting.held_for,
            waited: waiting.waited,
        }
    }
}
