use fencelock_core::engine::{End, Ended, HoldId, LeaseNews, Tenure};
use fencelock_core::{HolderId, Moment, Renew, Ttl, Unknown};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The state that the guards of one hold share: what was granted, and how it ended. It outlives the hold.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) hold: HoldId,
    pub(crate) holder: HolderId,
    pub(crate) ttl: Ttl,
    /// Until then, a claim without a reply may still arrive at the server.
    pub(crate) stray_until: Moment,
    /// In a box, because there may be very many leases, and few have ended or fail.
    news: Mutex<Option<Box<LeaseNews>>>,
    /// Wakes the tasks that wait for the end.
    pub(crate) ended: Notify,
}

impl LeaseState {
    pub(crate) fn new(hold: HoldId, holder: HolderId, ttl: Ttl, stray_until: Moment) -> Self {
        Self { hold, holder, ttl, stray_until, news: Mutex::new(None), ended: Notify::new() }
    }

    /// Without a loss, every tenure was released, as if there were no news.
    pub(crate) fn on_ended<L>(&self, ended: &Ended<L>) {
        if ended.end != End::Released {
            self.news().get_or_insert_default().on_ended(ended);
        }
    }

    /// See [`LeaseNews::end`].
    pub(crate) fn end(&self, tenure: Tenure) -> End {
        self.news().as_ref().map_or(End::Released, |news| news.end(tenure))
    }

    /// See [`LeaseNews::on_renewal`].
    pub(crate) fn on_renewal(&self, sent: Moment, answer: &Result<Renew, Unknown>) -> bool {
        let mut news = self.news();
        if news.is_none() && answer.is_ok() {
            return false;
        }
        let is_new = news.get_or_insert_default().on_renewal(sent, answer);
        news.take_if(|news| news.is_empty());
        is_new
    }

    pub(crate) fn news(&self) -> MutexGuard<'_, Option<Box<LeaseNews>>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
