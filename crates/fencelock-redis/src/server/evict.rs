//! Evicts the hold of another client.

use super::Redis;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::reply::Evicting;
use crate::scripts::reply::{self, Evicted, Remaining, StoredLock};
use crate::scripts::script;
use crate::scripts::shared;
use crate::scripts::unread;
use fencelock_core::{Eviction, HolderInfo, Holding, Key, Unknown};

impl Redis {
    async fn stored_lock(&self, key: &Key) -> Result<Option<StoredLock>, Unknown> {
        let free = |epoch_check: EpochCheck<'_>| {
            script::inspect(&self.link.target.wire(key), EpochCheck { mark: None, ..epoch_check })
        };
        reply::read_inspect(self.link.node(), self.call(free).await?)
    }

    /// Evicts the hold, if it is a lock and has not changed.
    pub(crate) async fn end(&self, holding: &Holding) -> Result<Eviction, Unknown> {
        let key = &holding.key;
        let Some(seen) = self.stored_lock(key).await? else { return Ok(Eviction::Changed(None)) };
        if seen.is_shared() {
            return self.end_some(holding, &seen).await;
        }
        if let Some(hold) = holding.hold_of(&seen.occupant()) {
            // The caller inspected a hold with an expiry. A value without one may be data, and must not be deleted.
            let same_end = hold.expiry.span().is_some() == seen.expires();
            if seen.is_later() {
                return Ok(Eviction::Refused(unread::not_ended(key)));
            }
            let Some(what) = seen.evicting() else {
                return Ok(Eviction::Refused(format!("{} is not a lock, and was not changed", seen.occupant())));
            };
            if what != Evicting::Ours && !same_end {
                return Ok(Eviction::Changed(Some(Box::new(seen.holding(key, self.clock.wall_micros())))));
            }
            if self.evicts(key, &seen.value, what).await? {
                return Ok(Eviction::Evicted);
            }
        }
        self.changed(key).await
    }

    /// Evicts the listed holds of a lock that several clients hold. If `holding` counts holders that it does not list, the whole
    /// lock is evicted.
    async fn end_some(&self, holding: &Holding, seen: &StoredLock) -> Result<Eviction, Unknown> {
        let (key, listed) = (&holding.key, shared::listed(holding));
        let now = seen.holding(key, self.clock.wall_micros());
        let is_same =
            |hold: &HolderInfo| now.holders.iter().any(|n| (&n.occupant, n.fence) == (&hold.occupant, hold.fence));
        let all = holding.holders.count() as usize > holding.holders.iter().count();
        let evicted = if all && holding.holders.iter().any(is_same) {
            self.evicts(key, shared::value(&seen.value), Evicting::Shared).await?
        } else {
            self.evicts(key, listed.as_bytes(), Evicting::Holds).await?
        };
        if evicted { Ok(Eviction::Evicted) } else { self.changed(key).await }
    }

    async fn evicts(&self, key: &Key, seen: &[u8], what: Evicting) -> Result<bool, Unknown> {
        let (wire, now) = (self.link.target.wire(key), self.clock.wall_micros());
        let answer = self.call(|epoch_check| script::evict(&wire, seen, what, now, epoch_check)).await?;
        self.link.note_unread(&wire, &answer);
        let (evicted, left) = reply::read_evict(self.link.node(), answer)?;
        if evicted == Evicted::Yes {
            // The server does not report a change to the connection that made it.
            self.link.push_handler.changed(key);
            if left == Remaining::More {
                self.continue_hand_off(key).await;
            }
        }
        Ok(evicted == Evicted::Yes)
    }

    async fn changed(&self, key: &Key) -> Result<Eviction, Unknown> {
        let now = self.stored_lock(key).await?;
        Ok(Eviction::Changed(now.map(|seen| Box::new(seen.holding(key, self.clock.wall_micros())))))
    }
}
