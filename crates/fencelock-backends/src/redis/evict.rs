//! Ends what somebody else holds.

use super::Redis;
use super::guard::Pass;
use super::reply::{self, Evicted, Left, Seen};
use super::script::{self, Evicting};
use super::unread;
use fencelock_core::{Eviction, HolderId, Holding, Key, Unknown};

impl Redis {
    async fn look(&self, key: &Key) -> Result<Option<Seen>, Unknown> {
        let free = |pass: Pass<'_>| script::inspect(&self.link.target.wire(key), Pass { mark: None, ..pass });
        reply::read_inspect(self.link.node(), self.call(free).await?)
    }

    /// Ends the hold that was seen, if it is a lock and still that one.
    pub(super) async fn end(&self, holding: &Holding) -> Result<Eviction, Unknown> {
        let key = &holding.key;
        let Some(seen) = self.look(key).await? else { return Ok(Eviction::Changed(None)) };
        if let Some(hold) = holding.hold_of(&seen.occupant()) {
            // Who saw an end did not agree to delete what has none, and may be data.
            let same_end = hold.expiry.span().is_some() == seen.expires();
            if seen.is_later() {
                return Ok(Eviction::Refused(unread::not_ended(key)));
            }
            let Some(what) = seen.evicting() else {
                return Ok(Eviction::Refused(format!("{} is no lock, and is left as it is", seen.occupant())));
            };
            if what != Evicting::Ours && !same_end {
                return Ok(Eviction::Changed(Some(Box::new(seen.holding(key, self.clock.wall_micros())))));
            }
            let (wire, now) = (self.link.target.wire(key), self.clock.wall_micros());
            let answer = self.call(|pass| script::evict(&wire, &seen.value, what, now, pass)).await?;
            self.link.note_unread(&wire, &answer);
            let (evicted, left) = reply::read_evict(self.link.node(), answer)?;
            if evicted == Evicted::Yes {
                // The server does not tell the connection that made a change of its own change.
                self.link.feed.changed(key);
                if left == Left::More {
                    // Nobody ever holds under this.
                    let _ = self.give_up(key, &HolderId::from_bytes([0; 16])).await;
                }
                return Ok(Eviction::Evicted);
            }
        }
        let now = self.look(key).await?;
        Ok(Eviction::Changed(now.map(|seen| Box::new(seen.holding(key, self.clock.wall_micros())))))
    }
}
