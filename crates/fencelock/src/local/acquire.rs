use super::Rooms;
use super::linger::Idle;
use super::room::Call;
use super::ticket::Ticket;
use crate::acquiring;
use crate::core::Core;
use crate::error::{Error, unreachable};
use crate::guard::Guard;
use crate::request::{Request, Waiting};
use crate::search::{busy, out_of_time};
use fencelock_core::{Moment, Occupied};
use std::sync::Arc;
use std::time::Duration;

/// How often a waiter is told what it waits for.
const NEWS: Duration = Duration::from_secs(1);
/// What the first in line hears from the place is known this much later.
const FIRST_NEWS: Duration = Duration::from_millis(10);

/// Waits for the key in the line of this client.
///
/// Whoever is served here need not know more than this: whatever has to do with the place is done by the one who contends.
pub(crate) async fn acquire(core: &Arc<Core>, rooms: &Arc<Rooms>, request: &Request) -> Result<Guard, Error> {
    core.check_open()?;
    let arrived = core.clock.now();
    let mut ticket = Ticket::enter(core, rooms, request, arrived, false);
    loop {
        let call = if request.wait.is_none() && request.on_wait.is_none() {
            ticket.called().await?
        } else {
            Box::pin(Watch { core, request, arrived }.wait(&mut ticket)).await?
        };
        match call {
            Call::Turn(hold, turn) => {
                let guard = Guard::of_turn(Arc::clone(core), hold, turn, arrived);
                if guard.is_held() {
                    return Ok(guard);
                }
                // It was lost on the way, so whoever it was handed to comes first again.
                drop(guard);
                ticket = Ticket::enter(core, rooms, request, arrived, true);
            }
            Call::Contend => {
                return Box::pin(acquiring::contend(core, request, arrived, Some(ticket))).await;
            }
            Call::Failed(error) => return Err(error),
            Call::Wait => {}
        }
    }
}

/// Claims the key without lining up. A lease that lingers here is as good as a free key.
pub(crate) async fn try_acquire(core: &Arc<Core>, rooms: &Arc<Rooms>, request: &Request) -> Result<Guard, Error> {
    core.check_open()?;
    let arrived = core.clock.now();
    match rooms.of(&request.key).and_then(|room| room.take_idle(request)) {
        Some(Idle::Taken(hold, turn)) => return Ok(Guard::of_turn(Arc::clone(core), hold, turn, arrived)),
        Some(Idle::GivenUp(idle)) => idle.release(&*core.backend).await,
        None => {}
    }
    acquiring::contend(core, request, arrived, None).await
}

/// One who waits with bounds, or wants to be told.
struct Watch<'a> {
    core: &'a Arc<Core>,
    request: &'a Request,
    arrived: Moment,
}

impl Watch<'_> {
    async fn wait(&self, ticket: &mut Ticket<'_>) -> Result<Call, Error> {
        let deadline = self.request.wait.map_or(Moment::NEVER, |wait| self.arrived + wait);
        loop {
            tokio::select! {
                biased;
                call = ticket.called() => return call,
                () = std::future::ready(()) => {}
            }
            let known = ticket.view();
            let told = self.tell(known);
            let left = deadline.since(self.core.clock.now());
            let nap = match &self.request.on_wait {
                None => left,
                Some(_) => left.min(if told { NEWS } else { FIRST_NEWS }),
            };
            tokio::select! {
                biased;
                call = ticket.called() => return call,
                () = tokio::time::sleep(nap) => {}
            }
            if self.core.clock.now() >= deadline {
                let known = ticket.view().map(|(_, occupied)| occupied);
                return tokio::select! {
                    biased;
                    call = ticket.called() => call,
                    error = self.busy(known) => Err(error),
                };
            }
        }
    }

    /// Says whether there was something to tell.
    fn tell(&self, known: Option<(Option<u32>, Occupied)>) -> bool {
        let (Some(on_wait), Some((ahead, occupied))) = (&self.request.on_wait, known) else { return false };
        on_wait(&Waiting {
            key: self.request.key.clone(),
            ahead,
            holders: occupied.holders,
            expiry: occupied.expiry,
            held_for: occupied.held_for,
            waited: self.core.clock.now().since(self.arrived),
        });
        true
    }

    /// The wait is over. The place is asked once who has the key.
    async fn busy(&self, known: Option<Occupied>) -> Error {
        let looked = self.core.backend.inspect(&self.request.key);
        let looked = tokio::time::timeout(acquiring::LAST_WORD, looked).await;
        let (seen, cause) = match looked {
            Ok(Ok(seen)) => (seen.map(Occupied::from), None),
            Ok(Err(cause)) => (None, Some(cause)),
            Err(_) => (None, Some(out_of_time(self.core))),
        };
        let waited = self.core.clock.now().since(self.arrived);
        match (seen.or(known), cause) {
            (None, Some(cause)) => unreachable(Some(&self.request.key), cause, waited, 1),
            (occupied, _) => busy(&self.request.key, occupied, waited, 1),
        }
    }
}
