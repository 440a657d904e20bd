//! The waiter's side: ask, stand in line, be woken, ask again, and leave nothing behind.

use crate::core::Core;
use crate::error::{Error, could_not_tell};
use crate::guard::Guard;
use crate::hold::{Beginning, Hold};
use crate::janitor::STRAGGLER;
use crate::local::ticket::Ticket;
use crate::request::Request;
use crate::search::{Search, out_of_time, too_late};
use crate::standing::{Standing, give_up};
use crate::telemetry::Way;
use crate::waiters::{Handed, Waiter};
use crate::watchdog::FIRST_LOOK;
use fencelock_core::{
    Acquire, Answer, Claim, Holder, HolderId, Intent, Lease, LossReason, Moment, Occupied, PlaceInLine, RenewalPlan,
    TokenBlock, Unknown,
};
use std::sync::Arc;
use std::time::Duration;

/// Attempts in a row that may find themselves out of the line before the next one waits a moment.
const HASTY_ATTEMPTS: u32 = 3;
/// A waiter asks once more when its wait is over, and waits this much longer for the answer: a healthy server needs less.
pub(crate) const LAST_WORD: Duration = Duration::from_millis(50);

/// Claims the key at the place where it lives, for whoever is first in line here, or does not line up.
#[tracing::instrument(level = "debug", name = "acquire", skip_all, fields(key = %request.key))]
pub(crate) async fn contend(
    core: &Arc<Core>,
    request: &Request,
    arrived: Moment,
    ticket: Option<Ticket<'_>>,
) -> Result<Guard, Error> {
    let mut search = Search::new(core, request, arrived, ticket);
    let free_until = search.ticket.as_ref().map_or(Moment::default(), Ticket::free_until).min(search.deadline);
    let pause = free_until.since(core.clock.now());
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    let found = search.find().await;
    if let (Err(error @ (Error::Unreachable { .. } | Error::Config(_))), Some(ticket)) = (&found, &search.ticket) {
        ticket.failed(error);
    }
    found
}

#[tracing::instrument(level = "debug", name = "resume", skip_all, fields(key = %request.key))]
pub(crate) async fn resume(core: &Arc<Core>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    core.check_open()?;
    let holder = Holder { id: holder, owner: request.owner.clone() };
    let claim = Claim::new(request.key.clone(), holder, request.ttl, Intent::Poll);
    let sent = core.clock.now();
    match core.backend.acquire(&claim).await {
        Ok(Acquire::Granted { tokens }) => {
            let lease = lease_of(core, request, sent);
            let grant = Grant { holder: claim.holder.id, tokens: tokens.last().into(), lease };
            let guard = hold(core, request, grant, Moment::default(), None);
            core.telemetry.acquired(guard.hold(), guard.turn(), Duration::ZERO, Way::Resumed);
            Ok(guard)
        }
        Ok(_) => Err(Error::Lost { key: claim.key, reason: LossReason::Expired }),
        Err(cause) => Err(could_not_tell(&request.key, cause, core.clock.now().since(sent), 1)),
    }
}

impl Search<'_> {
    async fn find(&mut self) -> Result<Guard, Error> {
        loop {
            self.core.check_open()?;
            let attempt = Attempt::new(self.core, self.request, self.ticket.as_ref())?;
            if let Some(guard) = attempt.run(self).await? {
                return Ok(guard);
            }
            if self.out_of_line > HASTY_ATTEMPTS {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// One attempt under one fresh holder, or under that of a task of this client that has given up. Dropping it leaves
/// whatever it may have got to the next such task, or gives it up.
pub(crate) struct Attempt<'a> {
    core: &'a Arc<Core>,
    claim: Claim,
    waiter: Arc<Waiter>,
    /// Where its task stands in the line of this client, as long as whoever stands behind it may go on under this holder:
    /// not if that is being released, or is of no use.
    place: Option<usize>,
    /// Another task goes on under this holder.
    left: bool,
    /// The last claim that was answered with a place in line.
    answered: Option<PlaceInLine>,
    /// Something of this holder may be on the server.
    left_behind: bool,
    /// A request was sent whose answer has not come.
    in_flight: bool,
    /// Until then, a request whose answer never came may still arrive, also after later ones were answered.
    stray_until: Moment,
    asked: u32,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, request: &Request, ticket: Option<&Ticket<'_>>) -> Result<Self, Error> {
        if let Some(ticket) = ticket
            && let Some(standing) = ticket.inherited()
        {
            return Ok(Self::going_on(core, *standing, ticket));
        }
        let holder = Holder { id: core.identity.fresh_holder()?, owner: request.owner.clone() };
        let waiter = core.waiters.join(&request.key, holder.id, request.retry.is_none());
        let claim = Claim::new(request.key.clone(), holder, request.ttl, Intent::Try);
        core.telemetry.waiting(&claim.key);
        Ok(Self {
            core,
            claim,
            waiter,
            place: ticket.map(Ticket::place),
            left: false,
            answered: None,
            left_behind: false,
            in_flight: false,
            stray_until: Moment::default(),
            asked: 0,
        })
    }

    /// Whatever was heard under this holder still counts: a lease is as good whichever task of the client has it.
    fn going_on(core: &'a Arc<Core>, mut standing: Standing, ticket: &Ticket<'_>) -> Self {
        standing.taken();
        let (claim, waiter) = (standing.claim.clone(), Arc::clone(&standing.waiter));
        let Standing { answered, stray_until, asked, .. } = standing;
        let (place, left, left_behind, in_flight) = (Some(ticket.place()), false, true, false);
        Self { core, claim, waiter, place, left, answered, left_behind, in_flight, stray_until, asked }
    }

    /// `None` if the attempt came to nothing and another should begin.
    pub(crate) async fn run(mut self, search: &mut Search<'_>) -> Result<Option<Guard>, Error> {
        if self.left_behind {
            // It goes on from where another task has given up, which may have been handed the key meanwhile.
            if let Some(guard) = self.handed(search) {
                return Ok(Some(guard));
            }
        } else {
            self.claim.intent = if search.request.lines_up() { Intent::Enqueue } else { Intent::Try };
        }
        loop {
            let (sent, answer) = self.ask(search).await;
            self.core.check_open()?;
            match answer {
                Ok(Acquire::Granted { tokens }) => {
                    let lease = lease_of(self.core, search.request, sent);
                    let guard = self.granted(search, self.whole(tokens), lease, Way::Claimed);
                    if guard.is_none() {
                        self.place = None;
                        search.unanswered(too_late(self.core))?;
                    }
                    return Ok(guard);
                }
                Ok(Acquire::Gone) => {
                    self.left_behind = false;
                    search.out_of_line += 1;
                    return Ok(None);
                }
                Ok(Acquire::Busy(occupied)) => {
                    self.left_behind = false;
                    search.told(None, occupied);
                }
                Ok(Acquire::Queued { ahead, last_fence, server_micros, occupied }) => {
                    self.answered = Some(PlaceInLine { sent, last_fence, server_micros });
                    self.claim.intent = Intent::Poll;
                    search.told(Some(ahead), occupied);
                }
                Err(cause) if cause.not_replicated().is_some() || cause.is_permanent() => {
                    self.leave().await;
                    return Err(could_not_tell(&self.claim.key, cause, search.waited(), search.attempts));
                }
                // It may have been carried out. A poll can tell, without a second place in line.
                Err(cause) => {
                    if self.claim.intent == Intent::Enqueue && self.left_behind {
                        self.claim.intent = Intent::Poll;
                    }
                    search.unanswered(cause)?;
                }
            }
            if search.is_over() {
                if !self.bequeath() {
                    self.leave().await;
                }
                return Err(search.busy());
            }
            self.sleep(search).await;
            self.core.check_open()?;
            if self.core.backend.capabilities().fresh_holders {
                // A rollback of this claim may still be under way; it must not find the next one under the same holder.
                return Ok(None);
            }
            if let Some(guard) = self.handed(search) {
                return Ok(Some(guard));
            }
        }
    }

    /// When it was sent, and the answer. The time of connecting is no part of a lease.
    async fn ask(&mut self, search: &mut Search<'_>) -> (Moment, Result<Acquire, Unknown>) {
        search.attempts += 1;
        self.asked += 1;
        if let Some(ticket) = &search.ticket {
            self.claim.block = ticket.block();
        }
        let ready = self.in_time(search, self.core.backend.ready()).await;
        let sent = self.core.clock.now();
        if let Err(cause) = ready {
            return (sent, Err(cause.unsent()));
        }
        let left_behind = std::mem::replace(&mut self.left_behind, true);
        self.in_flight = true;
        let answer = match self.others_here(search).await {
            Some(busy) => busy,
            None => self.in_time(search, self.core.backend.acquire(&self.claim)).await,
        };
        self.in_flight = false;
        match &answer {
            // This claim came to nothing; an earlier one of the same holder may not have.
            Err(cause) if cause.changed_nothing() || cause.is_unsent() => self.left_behind = left_behind,
            // It was carried out as far as it will ever be.
            Err(cause) if cause.not_replicated().is_some() || cause.is_permanent() => {}
            Err(_) => self.stray_until = self.core.clock.now() + STRAGGLER,
            Ok(_) => {}
        }
        (sent, answer)
    }

    /// An answer that is under way when the wait ends is hardly waited for. Who asks only once leaves that to the backend.
    async fn in_time<T>(&self, search: &Search<'_>, answer: Answer<'_, T>) -> Result<T, Unknown> {
        let left = search.deadline.since(self.core.clock.now());
        if left == Duration::MAX || search.request.wait == Some(Duration::ZERO) {
            return answer.await;
        }
        tokio::time::timeout(left.max(LAST_WORD), answer).await.unwrap_or_else(|_| Err(out_of_time(self.core)))
    }

    /// Who does not line up does not come before those who do, also where only this client knows of them.
    async fn others_here(&self, search: &Search<'_>) -> Option<Result<Acquire, Unknown>> {
        let rooms = self.core.rooms.as_ref().filter(|_| !search.request.lines_up())?;
        let first = rooms.of(&self.claim.key)?.first()?;
        let seen = self.core.backend.inspect(&self.claim.key).await;
        Some(seen.map(|seen| Acquire::Busy(seen.map_or(first, Occupied::from))))
    }

    /// Until somebody rings, or it is time to ask without.
    async fn sleep(&self, search: &Search<'_>) {
        let fresh = self.core.backend.capabilities().fresh_holders;
        let asked = if fresh { search.attempts } else { self.asked };
        let pause = search.pause(asked.saturating_sub(1));
        let woken = async {
            self.waiter.bell.notified().await;
            // Who asks at times of its own is woken by the end of the client only.
            while search.request.retry.is_some() && self.core.check_open().is_ok() {
                self.waiter.bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = woken => {}
            () = tokio::time::sleep(pause) => self.core.telemetry.fallback_poll(&self.claim.key),
        }
    }

    /// Begins at once on a hand-off message, if it is to be believed. The first look of the watchdog makes it a full lease.
    fn handed(&mut self, search: &mut Search<'_>) -> Option<Guard> {
        let Handed { tokens, claim_ttl } = self.waiter.take_handed()?;
        let now = self.core.clock.now();
        let lease = self.answered?.believe(tokens, claim_ttl, search.request.ttl, self.core.drift, now)?;
        let lease = if self.core.backend.capabilities().expires { lease } else { Lease::endless() };
        self.granted(search, tokens, lease, Way::Handed)
    }

    /// A poll that arrives after a hand-off is told of its last token alone. The message of that hand-off, if it has come,
    /// tells them all. A token is given once, so one that ends with the same token is of the same grant.
    fn whole(&self, tokens: TokenBlock) -> TokenBlock {
        let same = |handed: &Handed| !handed.claim_ttl.is_zero() && handed.tokens.last() == tokens.last();
        self.waiter.take_handed().filter(same).map_or(tokens, |handed| handed.tokens)
    }

    fn granted(&mut self, search: &mut Search<'_>, tokens: TokenBlock, lease: Lease, way: Way) -> Option<Guard> {
        if lease.lapsed(self.core.clock.now()) {
            tracing::warn!(key = %self.claim.key, "granted too late, giving it back");
            return None;
        }
        self.core.trouble.ends(self.core.clock.now());
        let grant = Grant { holder: self.claim.holder.id, tokens, lease };
        let guard = hold(self.core, search.request, grant, self.stray_until, search.ticket.take());
        // From here on the guard sees to both.
        self.left_behind = false;
        self.stray_until = Moment::default();
        self.core.telemetry.acquired(guard.hold(), guard.turn(), search.waited(), way);
        Some(guard)
    }

    /// Leaves the place in the server's line to whoever is next of this client, if it would ask for the same lease.
    fn bequeath(&mut self) -> bool {
        let Self { core, place: Some(place), left_behind: true, .. } = *self else { return false };
        if !core.backend.capabilities().queues {
            return false;
        }
        let room = core.rooms.as_ref().and_then(|rooms| rooms.of(&self.claim.key));
        let left = room.is_some_and(|room| {
            room.bequeath(place, || {
                // An answer that nobody waits for any more is one that never came.
                let stray_until = if self.in_flight { core.clock.now() + STRAGGLER } else { self.stray_until };
                let claim = self.claim.with_intent(Intent::Poll);
                Standing::new(core, claim, &self.waiter, self.answered, stray_until, self.asked)
            })
        });
        // From here on that one sees to it.
        self.left = left;
        left
    }

    /// Gives up the place in line, and waits for the server's word, so that whoever is told "busy" leaves nothing. A server
    /// that does not allow it either will not do so later.
    async fn leave(&mut self) {
        self.place = None;
        if self.left_behind {
            let left = self.core.backend.release(&self.claim.key, &self.claim.holder.id).await;
            self.left_behind = left.is_err_and(|cause| !cause.is_permanent());
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.left || self.bequeath() {
            return;
        }
        let stray_until = if self.in_flight { Moment::NEVER } else { self.stray_until };
        give_up(self.core, &self.claim, &self.waiter, self.left_behind, stray_until);
    }
}

fn lease_of(core: &Core, request: &Request, sent: Moment) -> Lease {
    if core.backend.capabilities().expires {
        Lease::granted(sent, request.ttl.get(), core.drift)
    } else {
        Lease::endless()
    }
}

/// What a claim or a hand-off brought.
#[derive(Debug, Clone, Copy)]
struct Grant {
    holder: HolderId,
    tokens: TokenBlock,
    lease: Lease,
}

/// The guard of what was granted; with a ticket, the lease is shared from now on.
fn hold(core: &Arc<Core>, request: &Request, grant: Grant, stray_until: Moment, ticket: Option<Ticket<'_>>) -> Guard {
    let Grant { holder, tokens, lease } = grant;
    let now = core.clock.now();
    let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| now + max_hold);
    let first = now + FIRST_LOOK.min(lease.remaining(now) / 3);
    let beginning = Beginning {
        key: request.key.clone(),
        holder,
        owner: request.owner.clone(),
        ttl: request.ttl,
        fence: tokens.first(),
        plan: RenewalPlan::new(lease, request.ttl, core.drift, first, ends),
        stray_until,
        room: ticket.as_ref().map(|ticket| Arc::clone(ticket.room())),
        process: core.identity.process(),
    };
    let (hold, turn) = Hold::begin(beginning, Arc::clone(&core.clock));
    let hold = Arc::new(hold);
    let guard = Guard::new(Arc::clone(core), Arc::clone(&hold), turn);
    if let Some(ticket) = ticket {
        ticket.opened(&hold, tokens);
    }
    guard
}
