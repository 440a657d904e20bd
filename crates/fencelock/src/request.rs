//! A request with checked settings.

use fencelock_core::engine::AcquireRequest;
use fencelock_core::{Expiry, Holders, Key, KeySet, Unknown};
use std::sync::Arc;
use std::time::Duration;

pub(crate) type OnWait = Arc<dyn Fn(&Waiting) + Send + Sync>;
pub(crate) type OnTrouble = Arc<dyn Fn(&Unknown) + Send + Sync>;

/// The last known state of a wait.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Waiting {
    /// The key.
    pub key: Key,
    /// The number of waiters in front; `None` without a queue.
    pub ahead: Option<u32>,
    /// The holders.
    pub holders: Holders,
    /// When the first of these holds ends unless it is renewed.
    pub expiry: Expiry,
    /// The duration of the oldest of these holds, if known.
    pub held_for: Option<Duration>,
    /// How long the request has waited.
    pub waited: Duration,
}

/// A lock with checked settings.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) options: AcquireRequest,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) on_trouble: Option<OnTrouble>,
}

/// Several locks whose settings are checked.
#[derive(Clone)]
pub(crate) struct SetRequest {
    pub(crate) keys: KeySet,
    /// The settings of each lock. Its wait is for all of them together.
    pub(crate) template: Request,
}
