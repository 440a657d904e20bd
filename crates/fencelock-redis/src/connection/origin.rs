//! The server of a connection.

use super::subscribed::Subscribed;
use crate::scripts::quarantine::UNKNOWN_RUN_ID;
use crate::sentinel::Mastership;
use std::sync::{Arc, OnceLock};

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
