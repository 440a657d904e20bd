//! A lease that nobody here needs any more stays for a moment, if that is wanted: the next task has it without the network.

use super::Rooms;
use super::room::{After, Call, Room, Seat, State};
use crate::closing::Releasing;
use crate::hold::{Hold, Turn};
use crate::request::Request;
use fencelock_core::{Backend, Moment};
use std::sync::Arc;

/// What became of a lease that lingered.
pub(super) enum Idle {
    /// It is the caller's.
    Taken(Arc<Hold>, Turn),
    /// It does not suit, and must be released.
    GivenUp(GivenUp),
}

/// A lease that lingered and is released by a task that waits for it. Without a confirmation that is done in the background.
pub(super) struct GivenUp {
    rooms: Arc<Rooms>,
    hold: Arc<Hold>,
    confirmed: bool,
    /// Comes last.
    _releasing: Releasing,
}

impl GivenUp {
    /// If it cannot be told whether that was done, the next claim will tell.
    pub(super) async fn release(mut self, backend: &dyn Backend) {
        let released = backend.release(&self.hold.key, &self.hold.holder).await;
        self.confirmed = released.is_ok() && self.rooms.clock.now() >= self.hold.stray_until;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if !self.confirmed && !self.hold.is_forked() {
            self.rooms.give_back(&self.hold);
        }
    }
}

/// A lease that lingers. It goes back when this is dropped, also with the runtime, unless it was taken meanwhile.
pub(super) struct Kept {
    hold: Arc<Hold>,
    idle: Turn,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(room) = self.hold.room.as_ref().filter(|_| !self.hold.is_forked()) {
            room.lingered(&self.hold, &self.idle);
        }
    }
}

impl Room {
    /// Keeps the lease after its last turn, if nobody is known to wait for it.
    pub(super) fn linger(&self, state: &mut State, turn: &Turn, now: Moment) -> Option<After> {
        let linger = self.rooms.limits.linger;
        let share = state.share.as_mut().filter(|share| !linger.is_zero() && !share.company())?;
        share.next(now)?;
        let (idle, moved) = share.hold.rest_after(turn, now)?;
        share.idle = true;
        let hold = Arc::clone(&share.hold);
        let kept = Some(Kept { hold: Arc::clone(&hold), idle });
        // Whether somebody waits is asked at once.
        Some(After { ask: true, moved: moved.then_some(hold), kept, ..After::default() })
    }

    /// Not under the lock of the room: a runtime that has ended drops what it is given at once.
    pub(super) fn keep(&self, kept: Kept) {
        let linger = self.rooms.limits.linger;
        self.rooms.runtime.spawn(async move {
            tokio::time::sleep(linger).await;
            drop(kept);
        });
    }

    /// The time is over: the lease goes back unless it was taken meanwhile.
    fn lingered(&self, hold: &Arc<Hold>, idle: &Turn) {
        let mut state = self.state();
        if state.shares(hold) && hold.turn().is(idle) {
            let after = After { give_back: state.share.take().map(|share| share.hold), ..After::default() };
            self.finish(state, after);
        }
    }

    /// For one who does not line up: a lease that lingers, if it suits. One that does not comes back, to be released before
    /// anything else is asked.
    pub(super) fn take_idle(&self, request: &Request) -> Option<Idle> {
        let now = self.rooms.clock.now();
        let mut state = self.state();
        let turn = state.share.as_ref().filter(|share| share.idle)?.hold.turn();
        let seat = Seat::new(request, now);
        let place = state.line.push(seat);
        let after = state.hand_over(&turn, now);
        let called = state.line.take(place).map(|seat| seat.call);
        if let (Some(mut after), Some(Call::Turn(hold, turn))) = (after, called) {
            after.wake = None;
            self.finish(state, after);
            return Some(Idle::Taken(hold, turn));
        }
        let idle = state.share.take()?.hold;
        self.finish(state, After::default());
        let (rooms, releasing) = (Arc::clone(&self.rooms), self.rooms.closing.releasing());
        idle.let_go();
        rooms.watchdog.forget(&idle);
        Some(Idle::GivenUp(GivenUp { rooms, hold: idle, confirmed: false, _releasing: releasing }))
    }
}

impl Rooms {
    /// Nobody has this lease, so nobody waits for its release.
    pub(super) fn give_back(&self, hold: &Hold) {
        hold.let_go();
        // Before it is forgotten: the closing of the client waits for one or the other.
        self.janitor.take(hold.chore());
        self.watchdog.forget(hold);
    }
}
