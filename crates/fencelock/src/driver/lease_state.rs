use fencelock_core::engine::{End, Ended, HoldId, Tenure};
use fencelock_core::{HolderId, Moment, Ttl};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// The state that the guards of one hold share: what was granted, and how it ended. It outlives the hold.
#[derive(Debug)]
pub(super) struct LeaseState {
    pub(super) hold: HoldId,
    pub(super) holder: HolderId,
    pub(super) ttl: Ttl,
    /// Until then, a claim without a reply may still arrive at the server.
    pub(super) stray_until: Moment,
    /// In a box, because there may be very many leases, and few have ended.
    end: OnceLock<Box<Ending>>,
    /// Its holder id belongs to another process, so this client does not release it.
    given_away: AtomicBool,
    ended: Notify,
}

impl LeaseState {
    pub(super) fn new(hold: HoldId, holder: HolderId, ttl: Ttl, stray_until: Moment) -> Self {
        let (end, given_away, ended) = (OnceLock::new(), AtomicBool::new(false), Notify::new());
        Self { hold, holder, ttl, stray_until, end, given_away, ended }
    }

    pub(super) fn set_end<L>(&self, ended: &Ended<L>) {
        let Ended { tenure, others, end, .. } = ended;
        // The first end is kept.
        let _ = self.end.set(Box::new(Ending { tenure: *tenure, others: others.clone(), end: end.clone() }));
    }

    /// How this tenure ended. The hold has ended: its last tenure was lost, and the earlier ones were released.
    pub(super) fn end(&self, tenure: Tenure) -> End {
        let lasted = |ending: &&Ending| {
            ending.tenure == tenure || ending.others.binary_search_by(|other| other.cmp_number(tenure)).is_ok()
        };
        self.end.get().map(Box::as_ref).filter(lasted).map_or(End::Released, |ending| ending.end.clone())
    }

    /// Wakes the tasks that wait for the end.
    pub(super) fn notify(&self) {
        self.ended.notify_waiters();
    }

    pub(super) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }

    pub(super) fn give_away(&self) {
        self.given_away.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_given_away(&self) -> bool {
        self.given_away.load(Ordering::Relaxed)
    }
}
