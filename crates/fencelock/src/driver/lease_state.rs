use crate::loss::RenewalFailure;
use fencelock_core::engine::{End, Ended, HoldId, Tenure};
use fencelock_core::{Fault, HolderId, Moment, NodeFault, Renew, Ttl, Unknown};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// How a lease ended, and in which tenures.
#[derive(Debug)]
struct Ending {
    tenure: Tenure,
    /// In the order of their numbers.
    others: Box<[Tenure]>,
    end: End,
}

/// Renewals that fail.
#[derive(Debug)]
struct Failing {
    cause: Unknown,
    since: Moment,
}

/// What most leases never have.
#[derive(Debug, Default)]
struct Events {
    ending: Option<Ending>,
    failing: Option<Failing>,
}

/// The state that the guards of one hold share: what was granted, and how it ended. It outlives the hold.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) hold: HoldId,
    pub(crate) holder: HolderId,
    pub(crate) ttl: Ttl,
    /// Until then, a claim without a reply may still arrive at the server.
    pub(crate) stray_until: Moment,
    /// In a box, because there may be very many leases, and few have ended or fail.
    events: Mutex<Option<Box<Events>>>,
    ended: Notify,
}

impl LeaseState {
    pub(crate) fn new(hold: HoldId, holder: HolderId, ttl: Ttl, stray_until: Moment) -> Self {
        Self { hold, holder, ttl, stray_until, events: Mutex::new(None), ended: Notify::new() }
    }

    pub(crate) fn set_end<L>(&self, ended: &Ended<L>) {
        let Ended { tenure, others, end, .. } = ended;
        // No loss is recorded, so every tenure was released.
        if *end == End::Released {
            return;
        }
        // The first end is kept.
        let ending = || Ending { tenure: *tenure, others: others.clone(), end: end.clone() };
        self.events().get_or_insert_default().ending.get_or_insert_with(ending);
    }

    /// How this tenure ended. The hold has ended: its last tenure was lost, and the earlier ones were released.
    pub(crate) fn end(&self, tenure: Tenure) -> End {
        let lasted = |ending: &&Ending| {
            ending.tenure == tenure || ending.others.binary_search_by(|other| other.cmp_number(tenure)).is_ok()
        };
        let events = self.events();
        let ending = events.as_ref().and_then(|events| events.ending.as_ref());
        ending.filter(lasted).map_or(End::Released, |ending| ending.end.clone())
    }

    /// Records the result of a renewal that was sent at `sent`. Returns whether it failed in another way than the one before.
    pub(crate) fn note_renewal(&self, sent: Moment, answer: &Result<Renew, Unknown>) -> bool {
        let mut events = self.events();
        let Err(cause) = answer else {
            events.take_if(|events| events.ending.is_none());
            return false;
        };
        let failing = &mut events.get_or_insert_default().failing;
        let is_new = failing.as_ref().is_none_or(|before| !alike(&before.cause, cause));
        let since = failing.as_ref().map_or(sent, |before| before.since);
        *failing = Some(Failing { cause: cause.clone(), since });
        is_new
    }

    /// Why its renewals fail, if the last one did.
    pub(crate) fn renewal_failure(&self, now: Moment) -> Option<RenewalFailure> {
        let events = self.events();
        let failing = events.as_ref().and_then(|events| events.failing.as_ref());
        failing.map(|failing| RenewalFailure { cause: failing.cause.clone(), lasts: now.since(failing.since) })
    }

    fn events(&self) -> MutexGuard<'_, Option<Box<Events>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the tasks that wait for the end.
    pub(crate) fn notify(&self) {
        self.ended.notify_waiters();
    }

    pub(crate) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }
}

/// Whether the same nodes have the same faults. Details may contain a time.
fn alike(one: &Unknown, other: &Unknown) -> bool {
    one.nodes().iter().map(fault_of_node).eq(other.nodes().iter().map(fault_of_node))
}

fn fault_of_node(node: &NodeFault) -> (&str, Fault) {
    (&node.node, node.fault)
}
