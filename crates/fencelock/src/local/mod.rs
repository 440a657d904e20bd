//! Tasks of one client that want the same key stand in one line, and share one claim.
//!
//! The first of them *contends*: it claims at the place where the lock lives, as if it were alone. Once it has the key,
//! the lease passes from guard to guard without the network, to whoever waits longest, each under a fencing token of its
//! own from the block that was granted with the claim. The server sees one holder throughout.
//!
//! - Whoever asks for another TTL or label than the lease has contends for itself, when it is first in line.
//! - A lease that is lost, detached or has less than half of its time left is not passed on; the next in line contends.
//! - Others come first when they wait: a renewal is sent as a question now and then, without holding up anybody, and after
//!   a bounded batch the lease goes back. Where nobody can tell, it goes back after a bounded time.
//!
//! A [`Room`] lives as long as somebody is in it. Its lock is never kept over an await point or a wake-up.

pub(crate) mod acquire;
mod inheriting;
pub(crate) mod limits;
mod line;
mod linger;
pub(crate) mod room;
mod share;
pub(crate) mod ticket;
mod view;

use crate::closing::Closing;
use crate::janitor::Janitor;
use crate::request::Request;
use crate::watchdog::Watchdog;
use fencelock_core::{Clock, Key};
use limits::Limits;
use room::{Room, Seat};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The rooms of one client, by key.
pub(crate) struct Rooms {
    by_key: Mutex<HashMap<Key, Arc<Room>>>,
    limits: Arc<Limits>,
    /// Whether the place has a line of its own, and tells how many stand in it.
    queues: bool,
    clock: Arc<dyn Clock>,
    watchdog: Arc<Watchdog>,
    janitor: Arc<Janitor>,
    /// Guards may be dropped outside of it.
    runtime: tokio::runtime::Handle,
    closing: Arc<Closing>,
}

impl Rooms {
    pub(crate) fn new(
        limits: Limits,
        queues: bool,
        clock: Arc<dyn Clock>,
        watchdog: Arc<Watchdog>,
        janitor: Arc<Janitor>,
        runtime: tokio::runtime::Handle,
        closing: Arc<Closing>,
    ) -> Arc<Self> {
        let (by_key, limits) = (Mutex::default(), Arc::new(limits));
        Arc::new(Self { by_key, limits, queues, clock, watchdog, janitor, runtime, closing })
    }

    /// Whether nobody is in any of them.
    pub(crate) fn is_empty(&self) -> bool {
        self.rooms().is_empty()
    }

    /// Wakes everybody.
    pub(crate) fn nudge_all(&self) {
        let rooms: Vec<_> = self.rooms().values().cloned().collect();
        for room in rooms {
            room.nudge_all();
        }
    }

    /// The room of a key, if anybody is in it.
    pub(crate) fn of(&self, key: &Key) -> Option<Arc<Room>> {
        self.rooms().get(key).cloned()
    }

    /// Takes a place in line, in front of all others if `first`.
    fn enter(self: &Arc<Self>, request: &Request, seat: Seat, first: bool) -> (Arc<Room>, usize) {
        let mut seat = Some(seat);
        loop {
            let room = self.room(&request.key);
            if let Some(place) = room.sit(&mut seat, first) {
                return (room, place);
            }
            // Its last guest has just left.
            self.forget(&room);
        }
    }

    fn room(self: &Arc<Self>, key: &Key) -> Arc<Room> {
        let mut rooms = self.rooms();
        if let Some(room) = rooms.get(key) {
            return Arc::clone(room);
        }
        let room = Arc::new(Room::new(key.clone(), Arc::clone(self)));
        rooms.insert(key.clone(), Arc::clone(&room));
        room
    }

    fn forget(&self, room: &Room) {
        let mut rooms = self.rooms();
        if rooms.get(room.key()).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), room)) {
            rooms.remove(room.key());
        }
        drop(rooms);
        self.closing.emptied();
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<Key, Arc<Room>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::room::Call;
    use super::ticket::Ticket;
    use super::*;
    use crate::Client;
    use crate::hold::{Beginning, Hold};
    use fencelock_backends::Memory;
    use fencelock_core::{FencingToken, HolderId, Lease, Moment, RenewalPlan, Ttl};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn called(ticket: &mut Ticket<'_>) -> bool {
        let called = pin!(ticket.called()).poll(&mut Context::from_waker(Waker::noop()));
        matches!(called, Poll::Ready(Ok(Call::Contend)))
    }

    /// The watchdog may be faster than the task that was granted the lease, which then is over before it is shared.
    #[tokio::test]
    async fn nobody_waits_for_a_lease_that_was_over_before_it_was_shared() {
        let client = Client::with_backend(Arc::new(Memory::new())).unwrap();
        let core = client.core();
        let rooms = core.rooms.as_ref().unwrap();
        let (wait, retry, max_hold, on_wait, on_trouble) = (None, None, None, None, None);
        let (key, ttl, owner) = (Key::new("k").unwrap(), Ttl::default(), core.identity.owner(None).unwrap());
        let request = Request { key, ttl, wait, retry, owner, max_hold, on_wait, on_trouble };
        let enter = || Ticket::enter(core, rooms, &request, core.clock.now(), false);
        let (mut first, mut second) = (enter(), enter());
        assert!(called(&mut first) && !called(&mut second));
        let now = core.clock.now();
        let beginning = Beginning {
            key: request.key.clone(),
            holder: HolderId::from_bytes([1; 16]),
            owner: request.owner.clone(),
            ttl: request.ttl,
            fence: FencingToken::new(1).unwrap(),
            plan: RenewalPlan::new(Lease::endless(), request.ttl, core.drift, Moment::NEVER, now),
            stray_until: Moment::default(),
            room: Some(Arc::clone(first.room())),
            process: core.identity.process(),
        };
        let hold = Arc::new(Hold::begin(beginning, Arc::clone(&core.clock)).0);
        // As the watchdog tells it.
        assert!(hold.end().is_some());
        first.room().end(&hold);
        let tokens = fencelock_core::TokenBlock::ending(FencingToken::new(9).unwrap(), 9.try_into().unwrap());
        first.opened(&hold, tokens);
        assert!(called(&mut second), "nobody else would call it");
    }
}
