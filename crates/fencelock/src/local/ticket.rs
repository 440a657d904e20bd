use super::Rooms;
use super::room::{Call, Room, Seat};
use crate::core::Core;
use crate::error::Error;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::request::Request;
use crate::standing::Standing;
use fencelock_core::{Moment, Occupied, TokenBlock};
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Poll;

/// A place in the line of a room. Dropping it gives the place up, and whatever was handed to it meanwhile.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    core: &'a Arc<Core>,
    room: Arc<Room>,
    place: usize,
    arrived: Moment,
    /// Whether the place is still taken.
    seated: bool,
}

impl<'a> Ticket<'a> {
    /// The last place, or the first for one who was served in vain.
    pub(super) fn enter(
        core: &'a Arc<Core>,
        rooms: &Arc<Rooms>,
        request: &Request,
        arrived: Moment,
        first: bool,
    ) -> Self {
        let (room, place) = rooms.enter(request, Seat::new(request, arrived), first);
        Self { core, room, place, arrived, seated: true }
    }

    /// Waits until there is something to do.
    pub(super) async fn called(&mut self) -> Result<Call, Error> {
        poll_fn(|context| {
            self.core.check_open()?;
            let call = self.room.poll(self.place, context);
            if let Poll::Ready(call) = &call {
                self.seated = matches!(call, Call::Contend);
            }
            call.map(Ok)
        })
        .await
    }

    /// Who stands in the way, and how many stand before.
    pub(super) fn view(&self) -> Option<(Option<u32>, Occupied)> {
        self.room.view(self.place)
    }

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    pub(crate) const fn place(&self) -> usize {
        self.place
    }

    /// Before that it should not claim.
    pub(crate) fn free_until(&self) -> Moment {
        self.room.free_until()
    }

    /// What the one before has left at the server, to go on from there.
    pub(crate) fn inherited(&self) -> Option<Box<Standing>> {
        self.room.inherited(self.place)
    }

    /// How many tokens the claim should ask for.
    pub(crate) fn block(&self) -> NonZeroU32 {
        self.room.block()
    }

    /// The claim was granted: from here on the lease is shared.
    pub(crate) fn opened(mut self, hold: &Arc<Hold>, tokens: TokenBlock) {
        self.seated = false;
        self.room.opened(self.place, hold, tokens);
    }

    /// The claim was answered: who has the key.
    pub(crate) fn heard(&self, ahead: Option<u32>, occupied: &Occupied) {
        self.room.heard(ahead, occupied);
    }

    /// Claims were not answered since then; or, with `None`, the place is in quarantine, whose end everybody waits for.
    pub(crate) fn failing(&self, since: Option<Moment>) {
        self.room.failing(since);
    }

    /// Since when claims for this key were not answered, as far as this one has waited for it.
    pub(crate) fn failing_since(&self) -> Option<Moment> {
        self.room.failing_since(self.arrived)
    }

    /// There is no sense in claiming any more.
    pub(crate) fn failed(&self, error: &Error) {
        self.room.failed(error);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.seated || !self.core.identity.process().is_current() {
            return;
        }
        if let Some(Call::Turn(hold, turn)) = self.room.leave(self.place) {
            // Its guard passes it on.
            drop(Guard::of_turn(Arc::clone(self.core), hold, turn, self.arrived));
        }
    }
}
