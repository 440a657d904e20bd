//! Tells, once for all who wait, when a place begins to refuse claims, and when that is over.

use fencelock_core::{Fault, Moment, Unknown};
use std::sync::{Mutex, PoisonError};

/// Since when claims are refused.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    since: Mutex<Option<Moment>>,
}

impl Trouble {
    /// A claim came to nothing, and is made again.
    ///
    /// An outage is told by whoever gives up because of it, and a quarantine by the server's name when it begins. A server that
    /// answers, and takes no locks, would be waited for in silence.
    pub(crate) fn begins(&self, cause: &Unknown, now: Moment) {
        let told_elsewhere = |fault| matches!(fault, Fault::Timeout | Fault::Unreachable | Fault::Quarantined);
        if cause.nodes().iter().all(|node| told_elsewhere(node.fault)) {
            return;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(now);
            tracing::warn!("claims are refused, and made again until they are answered: {cause}");
        }
    }

    /// A claim was answered.
    pub(crate) fn ends(&self, now: Moment) {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = since {
            tracing::warn!("claims are answered again after {}", crate::Span(now.since(since)));
        }
    }
}
