//! Logs, once for all waiters, when a backend starts to refuse claims, and when it stops.

use fencelock_core::{Fault, Moment, Unknown, lock};
use std::sync::Mutex;

/// Since when claims are refused.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    since: Mutex<Option<Moment>>,
}

impl OutageLog {
    /// A claim was refused, and is repeated.
    ///
    /// An outage is reported by the waiter that gives up because of it, and a quarantine by the session of the server. A
    /// server that answers, but accepts no locks, would otherwise be waited for without a message.
    pub(crate) fn begins(&self, cause: &Unknown, now: Moment) {
        let reported_elsewhere = |fault| matches!(fault, Fault::Timeout | Fault::Unreachable | Fault::Quarantined);
        if cause.nodes().iter().all(|node| reported_elsewhere(node.fault)) {
            return;
        }
        let mut since = lock(&self.since);
        if since.is_none() {
            *since = Some(now);
            tracing::warn!("claims are refused, and are retried until they are answered: {cause}");
        }
    }

    /// A claim was answered.
    pub(crate) fn ends(&self, now: Moment) {
        let since = lock(&self.since).take();
        if let Some(since) = since {
            tracing::warn!("claims are answered again after {}", crate::Span(now.since(since)));
        }
    }
}
