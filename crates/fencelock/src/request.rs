//! What is asked for, once its settings are checked.

use fencelock_core::engine::AcquireRequest;
use fencelock_core::{Expiry, Holders, Key, KeySet, Unknown};
use std::sync::Arc;
use std::time::Duration;

pub(crate) type OnWait = Arc<dyn Fn(&Waiting) + Send + Sync>;
pub(crate) type OnTrouble = Arc<dyn Fn(&Unknown) + Send + Sync>;

/// What a waiter was last told.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Waiting {
    /// What it waits for.
    pub key: Key,
    /// How many stand before it; `None` where there is no line.
    pub ahead: Option<u32>,
    /// Who has the key.
    pub holders: Holders,
    /// When the first of these holds ends unless it is renewed.
    pub expiry: Expiry,
    /// How long the oldest of these holds has lasted, where it is known.
    pub held_for: Option<Duration>,
    /// How long it has waited.
    pub waited: Duration,
}

/// A lock whose settings are checked.
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
