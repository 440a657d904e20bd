use crate::loss::RenewalFailure;
use fencelock_core::engine::{End, Ended, HoldId, Tenure};
use fencelock_core::{Fault, HolderId, Moment, NodeFault, Renew, Ttl, Unknown};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What most leases never have.
#[derive(Debug, Default)]
struct Events {
    /// The last tenure, the others in the order of their numbers, and how they ended.
    ended: Option<(Tenure, Box<[Tenure]>, End)>,
    /// Why its renewals fail, and since when.
    failing: Option<(Unknown, Moment)>,
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
    /// Wakes the tasks that wait for the end.
    pub(crate) ended: Notify,
}

impl LeaseState {
    pub(crate) fn new(hold: HoldId, holder: HolderId, ttl: Ttl, stray_until: Moment) -> Self {
        Self { hold, holder, ttl, stray_until, events: Mutex::new(None), ended: Notify::new() }
    }

    pub(crate) fn set_end<L>(&self, Ended { tenure, others, end, .. }: &Ended<L>) {
        // No loss is recorded, so every tenure was released. The first end is kept.
        if *end != End::Released {
            let ended = || (*tenure, others.clone(), end.clone());
            self.events().get_or_insert_default().ended.get_or_insert_with(ended);
        }
    }

    /// How this tenure ended. The hold has ended: its last tenure was lost, and the earlier ones were released.
    pub(crate) fn end(&self, tenure: Tenure) -> End {
        match self.events().as_ref().and_then(|events| events.ended.as_ref()) {
            Some((last, others, end))
                if *last == tenure || others.binary_search_by(|other| other.cmp_number(tenure)).is_ok() =>
            {
                end.clone()
            }
            _ => End::Released,
        }
    }

    /// Records the result of a renewal that was sent at `sent`. Returns whether it failed in another way than the one before.
    pub(crate) fn note_renewal(&self, sent: Moment, answer: &Result<Renew, Unknown>) -> bool {
        let mut events = self.events();
        let Err(cause) = answer else {
            events.take_if(|events| events.ended.is_none());
            return false;
        };
        let failing = &mut events.get_or_insert_default().failing;
        let is_new = failing.as_ref().is_none_or(|(before, _)| !alike(before, cause));
        let since = failing.as_ref().map_or(sent, |(_, since)| *since);
        *failing = Some((cause.clone(), since));
        is_new
    }

    /// Why its renewals fail, if the last one did.
    pub(crate) fn renewal_failure(&self, now: Moment) -> Option<RenewalFailure> {
        let events = self.events();
        let (cause, since) = events.as_ref()?.failing.as_ref()?;
        Some(RenewalFailure { cause: cause.clone(), lasts: now.since(*since) })
    }

    fn events(&self) -> MutexGuard<'_, Option<Box<Events>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the same nodes have the same faults. Details may contain a time.
fn alike(one: &Unknown, other: &Unknown) -> bool {
    one.nodes().iter().map(fault_of_node).eq(other.nodes().iter().map(fault_of_node))
}

fn fault_of_node(node: &NodeFault) -> (&str, Fault) {
    (&node.node, node.fault)
}
