//! The server of a connection.

use super::quarantine::UNKNOWN_RUN_ID;
use super::sentinel::Mastership;
use super::subscribed::Subscribed;
use std::sync::{Arc, OnceLock};

/// The server of a connection, as far as its messages are concerned.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// Its run id, once it is known.
    pub(crate) run_id: OnceLock<String>,
    /// With sentinels: whether they still name it as the master.
    pub(crate) mastership: Option<Arc<Mastership>>,
    /// Of a connection with sharded channels: its subscriptions.
    pub(crate) shards: Option<Arc<Subscribed>>,
}

impl Origin {
    /// The run id follows.
    pub(crate) fn of(mastership: Option<&Arc<Mastership>>) -> Self {
        Self { mastership: mastership.cloned(), ..Self::default() }
    }

    pub(crate) fn run_id(&self) -> &str {
        self.run_id.get().map_or(UNKNOWN_RUN_ID, String::as_str)
    }

    /// Whether a message that arrives now counts.
    pub(crate) fn counts(&self) -> bool {
        self.mastership.as_ref().is_none_or(|mastership| mastership.counts())
    }
}
