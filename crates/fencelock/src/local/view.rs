//! Who stands in the way, as far as it is known without asking.

use super::room::Room;
use crate::hold::Hold;
use fencelock_core::{Expiry, Holder, HolderId, Moment, Occupant, Occupied};

impl Room {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state().line.waiting().count()
    }

    /// Who stands in the way of a waiter, and how many stand before it, as far as is known here.
    pub(super) fn view(&self, place: usize) -> Option<(Option<u32>, Occupied)> {
        let state = self.state();
        let before = state.line.waiting().take_while(|other| *other != place).count();
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        if let Some(share) = &state.share {
            let occupied = occupied(&share.hold, self.rooms.clock.now());
            return Some((self.rooms.queues.then_some(before), occupied));
        }
        let (ahead, occupied) = state.heard.as_deref()?;
        Some((ahead.map(|ahead| ahead.saturating_add(before)), occupied.clone()))
    }

    /// Who comes first here, for one who does not line up: whoever waits, or else nobody.
    pub(crate) fn first(&self) -> Option<Occupied> {
        let mut state = self.state();
        let front = state.line.front()?;
        let (ttl, owner) = state.line.get_mut(front).map(|seat| seat.lease())?;
        // Its id is not known before it is granted.
        let holder = Holder { id: HolderId::from_bytes([0; 16]), owner };
        Some(Occupied::new(Occupant::Holder(holder), Expiry::In(ttl.get())))
    }
}

fn occupied(hold: &Hold, now: Moment) -> Occupied {
    let by = Occupant::Holder(Holder { id: hold.holder, owner: hold.owner.clone() });
    let expiry = hold.rest().map_or(Expiry::Never, Expiry::In);
    Occupied::new(by, expiry).with_held_for(Some(now.since(hold.turn().since)))
}
