use super::Rooms;
use super::limits::{FIRST_BLOCK, GIVING_WAY, LARGEST_BLOCK};
use super::line::Line;
use super::linger::Kept;
use super::share::{Past, Share};
use crate::error::Error;
use crate::hold::{Hold, Turn};
use crate::identity::{anywhere_in, dice};
use crate::request::Request;
use crate::standing::Standing;
use fencelock_core::{Key, Moment, Occupied, Owner, TokenBlock, Ttl};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Those of one client who want one key.
pub(crate) struct Room {
    key: Key,
    pub(super) rooms: Arc<Rooms>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) line: Line<Seat>,
    /// The lease that is passed from task to task.
    pub(super) share: Option<Share>,
    /// What whoever contends was told last: how many stand before it, and who has the key.
    pub(super) heard: Option<Box<(Option<u32>, Occupied)>>,
    failing_since: Option<Moment>,
    /// What the last lease has left.
    past: Past,
    /// Until then nobody here claims: the key is left to those of whom nobody knows.
    free_until: Moment,
    /// How many tokens the next claim asks for.
    block: u32,
    /// Nobody is in it, and nobody may come in any more.
    gone: bool,
}

/// One who waits.
#[derive(Debug)]
pub(super) struct Seat {
    owner: Owner,
    ttl: Ttl,
    max_hold: Option<Duration>,
    arrived: Moment,
    waker: Option<Waker>,
    /// What it has from the one before, or leaves to the one behind.
    pub(super) standing: Option<Box<Standing>>,
    pub(super) call: Call,
}

/// What a waiter is to do.
#[derive(Debug)]
pub(super) enum Call {
    Wait,
    /// It is the first, and there is no lease it could get here.
    Contend,
    /// It has the key.
    Turn(Arc<Hold>, Turn),
    /// The place does not answer, or refuses, for as long as this one would have waited.
    Failed(Error),
}

impl Seat {
    pub(super) fn new(request: &Request, arrived: Moment) -> Self {
        let Request { owner, ttl, max_hold, .. } = request;
        let (owner, ttl, max_hold) = (owner.clone(), *ttl, *max_hold);
        Self { owner, ttl, max_hold, arrived, waker: None, standing: None, call: Call::Wait }
    }

    /// Whether the lease is what it would have claimed itself.
    fn fits(&self, hold: &Hold) -> bool {
        self.ttl == hold.ttl && self.owner == hold.owner
    }

    /// What it would claim.
    pub(super) fn lease(&self) -> (Ttl, Owner) {
        (self.ttl, self.owner.clone())
    }

    /// Whether it would have claimed the same itself.
    fn could_go_on_in(&self, standing: &Standing) -> bool {
        self.ttl == standing.claim.ttl && self.owner == standing.claim.holder.owner
    }

    fn call(&mut self, call: Call) -> Option<Waker> {
        self.call = call;
        self.waker.take()
    }
}

/// What is to be done once the lock is let go.
#[derive(Default)]
pub(super) struct After {
    pub(super) wake: Option<Waker>,
    /// It is time to ask whether others wait.
    pub(super) ask: bool,
    /// The end of the hold has moved.
    pub(super) moved: Option<Arc<Hold>>,
    /// It lingers.
    pub(super) kept: Option<Kept>,
    /// Nobody has it, and it goes back.
    pub(super) give_back: Option<Arc<Hold>>,
    /// What whoever contended has left at the server.
    pub(super) standing: Option<Box<Standing>>,
}

impl Room {
    pub(super) fn new(key: Key, rooms: Arc<Rooms>) -> Self {
        let state = State {
            line: Line::new(),
            share: None,
            heard: None,
            failing_since: None,
            past: Past::default(),
            free_until: Moment::default(),
            block: 1,
            gone: false,
        };
        Self { key, rooms, state: Mutex::new(state) }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Lines up. `None` leaves the seat where it is: the room is about to be closed.
    pub(super) fn sit(&self, seat: &mut Option<Seat>, first: bool) -> Option<usize> {
        let mut state = self.state();
        let seat = if state.gone { None } else { seat.take() }?;
        if state.share.is_some() || !state.line.is_empty() {
            state.block = state.block.max(FIRST_BLOCK);
        }
        let place = if first { state.line.push_front(seat) } else { state.line.push(seat) };
        let idle = state.share.as_ref().filter(|share| share.idle).map(|share| share.hold.turn());
        let after = match idle {
            Some(turn) => state.hand_over(&turn, self.rooms.clock.now()).unwrap_or_default(),
            None => After::default(),
        };
        self.finish(state, after);
        Some(place)
    }

    /// What a waiter is to do; who has got the key or an error has left its place.
    pub(super) fn poll(&self, place: usize, context: &mut Context<'_>) -> Poll<Call> {
        let mut state = self.state();
        let Some(seat) = state.line.get_mut(place) else { return Poll::Pending };
        match seat.call {
            Call::Wait => {
                if !seat.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    seat.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            Call::Contend => Poll::Ready(Call::Contend),
            Call::Turn(..) | Call::Failed(_) => {
                let seat = state.line.take(place);
                Poll::Ready(seat.map_or(Call::Wait, |seat| seat.call))
            }
        }
    }

    /// Goes away. What it was called for comes back.
    pub(super) fn leave(&self, place: usize) -> Option<Call> {
        let mut state = self.state();
        let mut seat = state.line.take(place);
        if matches!(&seat, Some(Seat { call: Call::Contend, .. })) {
            // What it heard may not be so any more when the next one asks.
            state.heard = None;
        }
        let standing = seat.as_mut().and_then(|seat| seat.standing.take());
        self.finish(state, After { standing, ..After::default() });
        seat.map(|seat| seat.call)
    }

    /// Whoever contends has the key now: its lease can be shared.
    pub(super) fn opened(&self, place: usize, hold: &Arc<Hold>, tokens: TokenBlock) {
        let mut state = self.state();
        state.line.take(place);
        // The lease may be one of very many that nobody else wants.
        state.line.rest();
        (state.heard, state.failing_since) = (None, None);
        let (granted, past) = (hold.turn().since, std::mem::take(&mut state.past));
        let Rooms { limits, queues, .. } = &*self.rooms;
        // One that is over by now has been told of before anybody could hear it here.
        let alive = hold.end().is_none();
        state.share = alive.then(|| Share::new(Arc::clone(hold), tokens, granted, past, limits, *queues));
        self.finish(state, After::default());
    }

    /// The holder of a turn has no use for it any more. `true` if the lease is another's in this room now, or lingers here;
    /// else it is to go back, and it is not shared any more.
    pub(crate) fn pass(&self, hold: &Arc<Hold>, turn: &Turn) -> bool {
        let now = self.rooms.clock.now();
        let mut state = self.state();
        if !state.shares(hold) {
            return false;
        }
        if let Some(after) = state.hand_over(turn, now) {
            self.finish(state, after);
            return true;
        }
        let served = state.line.is_empty();
        if served && let Some(after) = self.linger(&mut state, turn, now) {
            self.finish(state, after);
            return true;
        }
        let ahead = state.contends();
        if let Some(share) = state.share.take() {
            if share.gives_way(now) {
                state.free_until = now + self.pause();
            }
            state.past = share.ended(now, ahead);
        }
        self.finish(state, After::default());
        false
    }

    /// How long the key is left free for whoever asks.
    fn pause(&self) -> Duration {
        if self.rooms.queues { self.rooms.limits.pause } else { anywhere_in(GIVING_WAY, dice()) }
    }

    /// Until when nobody here claims.
    pub(super) fn free_until(&self) -> Moment {
        self.state().free_until
    }

    /// The hold is over or goes elsewhere: it is not shared any more.
    pub(crate) fn end(&self, hold: &Arc<Hold>) {
        let mut state = self.state();
        if state.shares(hold) {
            state.share = None;
            self.finish(state, After::default());
        }
    }

    /// The server says how many others wait.
    pub(crate) fn told(&self, hold: &Arc<Hold>, others: u32) {
        let mut state = self.state();
        // Whoever contends already may be the one in line at the server, and then nothing is passed on any more.
        if !state.shares(hold) || state.contends() {
            return;
        }
        let now = self.rooms.clock.now();
        let mut after = After::default();
        if let Some(share) = &mut state.share {
            share.told(others, now);
            if share.idle && others > 0 {
                after.give_back = state.share.take().map(|share| share.hold);
            }
        }
        self.finish(state, after);
    }

    /// How many tokens a claim asks for.
    pub(super) fn block(&self) -> NonZeroU32 {
        NonZeroU32::new(self.state().block).unwrap_or(NonZeroU32::MIN)
    }

    /// Whoever contends was told who has the key.
    pub(super) fn heard(&self, ahead: Option<u32>, occupied: &Occupied) {
        let mut state = self.state();
        state.heard = Some(Box::new((ahead, occupied.clone())));
        state.failing_since = None;
    }

    /// Whoever contends got no answer since then; or, with `None`, one that is waited for however long that takes.
    pub(super) fn failing(&self, since: Option<Moment>) {
        let mut state = self.state();
        state.failing_since = since.map(|since| state.failing_since.unwrap_or(since));
    }

    /// Since when nobody has got an answer, for one who came at `arrived`.
    pub(super) fn failing_since(&self, arrived: Moment) -> Option<Moment> {
        self.state().failing_since.map(|since| since.max(arrived))
    }

    /// Whoever contends gives up, as nobody answers. So do all who would have by themselves.
    pub(super) fn failed(&self, error: &Error) {
        let permanent = matches!(error, Error::Config(_));
        let now = self.rooms.clock.now();
        let mut wake = Vec::new();
        let mut state = self.state();
        let since = state.failing_since.unwrap_or(now);
        let waiting: Vec<_> = state.line.waiting().collect();
        for place in waiting {
            let Some(seat) = state.line.get_mut(place).filter(|seat| matches!(seat.call, Call::Wait)) else { continue };
            if permanent || now.since(since.max(seat.arrived)) >= seat.ttl.get() {
                wake.extend(seat.call(Call::Failed(error.clone())));
                state.line.serve(place);
            }
        }
        drop(state);
        wake.into_iter().for_each(Waker::wake);
    }

    pub(super) fn nudge_all(&self) {
        let mut state = self.state();
        let waiting: Vec<_> = state.line.waiting().collect();
        let wakers = waiting.into_iter().filter_map(|place| state.line.get_mut(place)?.waker.take());
        let wakers: Vec<_> = wakers.collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Lets go of the lock, after calling whoever must contend now, and does the rest.
    pub(super) fn finish(&self, mut state: MutexGuard<'_, State>, mut after: After) {
        // A lease that nobody has, and those who wait cannot get.
        if !state.line.is_empty() && state.share.as_ref().is_some_and(|share| share.idle) {
            after.give_back = state.share.take().map(|share| share.hold);
        }
        let contender = state.settle(&self.rooms, &mut after.standing);
        let gone = state.line.is_empty() && state.share.is_none();
        state.gone |= gone;
        drop(state);
        for waker in [after.wake, contender].into_iter().flatten() {
            waker.wake();
        }
        if after.ask {
            self.rooms.watchdog.hurry(&self.key);
        }
        if let Some(hold) = after.moved {
            self.rooms.watchdog.reset_timer(&hold);
        }
        if let Some(kept) = after.kept {
            self.keep(kept);
        }
        if let Some(hold) = after.give_back {
            self.rooms.give_back(&hold);
        }
        // Nobody goes on from there, so it is given up.
        drop(after.standing);
        if gone {
            self.rooms.forget(self);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the first in line asks the place already.
    fn contends(&mut self) -> bool {
        let front = self.line.front();
        let seat = front.and_then(|front| self.line.get_mut(front));
        seat.is_some_and(|seat| matches!(seat.call, Call::Contend))
    }

    pub(super) fn shares(&self, hold: &Arc<Hold>) -> bool {
        self.share.as_ref().is_some_and(|share| Arc::ptr_eq(&share.hold, hold))
    }

    /// The next in line gets the lease after `turn`, if there is one whom it suits and it may be passed on.
    pub(super) fn hand_over(&mut self, turn: &Turn, now: Moment) -> Option<After> {
        let share = self.share.as_mut()?;
        let front = self.line.front()?;
        let seat = self.line.get_mut(front).filter(|seat| seat.fits(&share.hold) && matches!(seat.call, Call::Wait))?;
        let token = share.next(now)?;
        let (next, moved) = share.hold.pass(turn, token, seat.max_hold, now)?;
        let ask = share.passed(now);
        if share.is_used_up() {
            self.block = self.block.saturating_mul(8).min(LARGEST_BLOCK);
        }
        let wake = seat.call(Call::Turn(Arc::clone(&share.hold), next));
        let moved = moved.then(|| Arc::clone(&share.hold));
        self.line.serve(front);
        Some(After { wake, ask, moved, ..After::default() })
    }

    /// Calls the first in line to contend, if there is nothing to wait for here: no lease, or one that does not suit, or one
    /// that this turn uses up. So it has its place at the server before that lease goes back; unless the key must be free then.
    fn settle(&mut self, rooms: &Rooms, standing: &mut Option<Box<Standing>>) -> Option<Waker> {
        let front = self.line.front()?;
        let seat = self.line.get_mut(front)?;
        let waits = |share: &Share| seat.fits(&share.hold) && share.has_more() || share.gives_way(rooms.clock.now());
        if !matches!(seat.call, Call::Wait) || self.share.as_ref().is_some_and(waits) {
            return None;
        }
        seat.standing = standing.take_if(|standing| seat.could_go_on_in(standing));
        seat.call(Call::Contend)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("key", &self.key).finish_non_exhaustive()
    }
}
