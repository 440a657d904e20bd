//! Whoever contends may give up. Its place in the server's line is that of the whole room, and goes to the next.

use super::room::{Call, Room};
use crate::standing::Standing;

impl Room {
    /// Whoever contends at `place` is about to leave. If the one behind it could go on in its place at the server, that
    /// is kept until then.
    pub(crate) fn bequeath(&self, place: usize, standing: impl FnOnce() -> Standing) -> bool {
        let mut state = self.state();
        let line = &mut state.line;
        let (front, heir) = {
            let mut waiting = line.waiting();
            (waiting.next(), waiting.next())
        };
        let Some(heir) = heir.filter(|_| front == Some(place)) else { return false };
        let Some(lease) = line.get_mut(place).map(|seat| seat.lease()) else { return false };
        let fits = line.get_mut(heir).is_some_and(|seat| matches!(seat.call, Call::Wait) && seat.lease() == lease);
        if fits && let Some(seat) = line.get_mut(place) {
            seat.standing = Some(Box::new(standing()));
        }
        fits
    }

    /// What whoever contends at `place` goes on from.
    pub(super) fn inherited(&self, place: usize) -> Option<Box<Standing>> {
        self.state().line.get_mut(place)?.standing.take()
    }
}
