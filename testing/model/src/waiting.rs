use super::answer::{Acquire, Occupied, ScriptError};
use super::key::{Advance, Claim, Intent, KeyModel, Lock, Wrote, take_memory};
use super::queue::{Delivery, Entry, HandOff, Name, Unread, Waiter};
use super::server::{LINE_TTL_MS, Server, VERSION};
use super::shared::NewHold;
use super::tokens::Tokens;
use super::value::Value;
use fencelock_core::Mode;

/// An offer of room to the queue, which one script makes in several steps.
#[derive(Debug)]
pub(super) struct Offer {
    proposal: u64,
    hand_off_ms: u64,
    /// How many more waiters the script examines.
    budget: usize,
}

impl Offer {
    pub(super) const fn new(server: &Server, proposal: u64, hand_off_ms: u64) -> Self {
        Self { proposal, hand_off_ms, budget: server.cap }
    }

    pub(super) const fn by(server: &Server, claim: &Claim) -> Self {
        Self::new(server, claim.proposal, claim.hand_off_ms)
    }
}

/// The effects of the scripts on the queue.
impl KeyModel {
    /// Enqueues the waiter if it is not in the queue, and extends its life. A poll does not enqueue. Removes dead waiters.
    pub(super) fn wait(
        &mut self,
        server: &Server,
        claim: &Claim,
        mut wrote: Wrote,
        unread: Option<Unread>,
    ) -> Result<Acquire, ScriptError> {
        let me = Name::Holder(claim.holder);
        if self.queue.rank(&me).is_none() && claim.intent == Intent::Poll {
            return Ok(Acquire::Gone(unread));
        }
        let clock_ms = server.clock_us(claim.proposal) / 1000;
        self.purge(&me, clock_ms, server.cap, &mut wrote);
        let ahead = if let Some(ahead) = self.queue.rank(&me) {
            ahead
        } else {
            take_memory(server, &mut wrote)?;
            self.queue.append(me.clone())
        };
        take_memory(server, &mut wrote)?;
        self.deadlines.until_ms.insert(me.clone(), clock_ms + claim.life_ms);
        let (ttl_ms, wanted, channel) = (claim.ttl_ms, claim.wanted, claim.channel);
        let version = match claim.mode {
            Mode::Shared => format!("{VERSION} r 1 0"),
            Mode::Permits { weight, limit, .. } => format!("{VERSION} s {weight} {limit}"),
            _ => VERSION.to_owned(),
        };
        let waiter = Waiter { ttl_ms, wanted, channel, value: claim.value(), version: version.into() };
        self.waiters.entries.insert(me, Entry::Waiter(waiter));
        // Only the first waiter extends the life of the queue: it polls while the queue exists.
        if ahead == 0 {
            let end = Some(server.now_ms() + LINE_TTL_MS);
            (self.queue.expires_ms, self.waiters.expires_ms, self.deadlines.expires_ms) = (end, end, end);
        }
        let now_us = (!server.time_refused).then_some(server.now_us);
        let occupied = Occupied { unread, ..self.occupied(server) };
        Ok(Acquire::Queued { ahead: ahead as u64, now_us, occupied })
    }

    fn purge(&mut self, me: &Name, now_ms: u64, cap: usize, wrote: &mut Wrote) {
        for name in self.deadlines.over(now_ms, cap).iter().filter(|name| *name != me) {
            *wrote = Wrote::Something;
            self.forget(name);
        }
    }

    /// Removes a waiter and its data.
    pub(super) fn forget(&mut self, name: &Name) {
        if let Some(rank) = self.queue.rank(name) {
            self.queue.remove(rank);
        }
        self.waiters.remove(name);
        self.deadlines.remove(name);
    }

    /// The number of live waiters.
    pub(super) fn living(&self, server: &Server) -> u64 {
        let waiting = self.queue.members.len() as u64;
        if waiting == 0 || server.time_refused { waiting } else { self.deadlines.count(server.now_ms()) }
    }

    /// Offers the room to the first live waiters whose processes listen, under a short lease until they confirm, and removes the
    /// skipped waiters. Stops at the first one that does not fit, and at `me`, and removes it too. A live waiter with an unreadable
    /// entry is not served, and keeps its position.
    pub(super) fn advance(
        &mut self,
        server: &Server,
        me: Option<(&Name, Mode)>,
        offer: &mut Offer,
        wrote: &mut Wrote,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<(Advance, Option<Unread>), ScriptError> {
        let (mut kept, mut unread) = (0, None);
        if self.queue.members.is_empty() {
            return Ok((Advance::NoWaiter, unread));
        }
        while offer.budget > 0 {
            offer.budget -= 1;
            let Some(name) = self.queue.at(kept).cloned() else { return Ok((Advance::NoWaiter, unread)) };
            let mine = me.filter(|(me, _)| **me == name).map(|(_, mode)| mode);
            let is_alive =
                self.deadlines.until_ms.get(&name).is_some_and(|until| until * 1000 > server.clock_us(offer.proposal));
            let waiter = self.waiters.read(&name).cloned();
            if is_alive && waiter.is_none() && mine.is_none() {
                kept += 1;
                unread = unread.or_else(|| Some(self.waiters.unread(&name)));
                continue;
            }
            let waiter = waiter.filter(|_| is_alive);
            // Without the server's time, every grant is exclusive.
            let requested = |waiter: &Waiter| if server.time_refused { Mode::Exclusive } else { waiter.mode() };
            let mode = mine.or_else(|| waiter.as_ref().map(requested));
            if mode.is_some_and(|mode| !self.fits(mode)) {
                return Ok((Advance::Blocked, unread));
            }
            *wrote = Wrote::Something;
            self.forget(&name);
            if mine.is_some() {
                return Ok((Advance::Mine, unread));
            }
            let (Some(waiter), Some(mode)) = (waiter, mode) else { continue };
            if self.hand_over(server, (name, waiter, mode), offer, wrote, publish)? == Advance::HandedOver {
                return Ok((Advance::HandedOver, unread));
            }
        }
        Ok(match () {
            () if kept == server.cap => (Advance::Unreadable, unread),
            () if self.queue.members.len() > kept => (Advance::More, unread),
            () => (Advance::NoWaiter, unread),
        })
    }

    /// `HandedOver` if the waiter has the lock alone now.
    fn hand_over(
        &mut self,
        server: &Server,
        (to, waiter, mode): (Name, Waiter, Mode),
        offer: &Offer,
        wrote: &mut Wrote,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Advance, ScriptError> {
        // The fence is drawn before the message, which contains it. If no client receives the message, the fence skips
        // a token, which is harmless.
        let tokens = Tokens { client_us: offer.proposal, proposed: false, wanted: waiter.wanted };
        let (fence, count) = self.draw(server, &tokens, wrote)?;
        let lease_ms = waiter.ttl_ms.min(offer.hand_off_ms);
        let delivery = waiter.channel.map(|channel| publish(HandOff { channel, to, fence, count, lease_ms }));
        if delivery == Some(Delivery::NoSubscriber) {
            return Ok(Advance::NoWaiter);
        }
        if mode == Mode::Exclusive {
            self.lock = Some(Lock { value: waiter.value, expires_ms: Some(server.now_ms() + lease_ms) });
            return Ok(Advance::HandedOver);
        }
        let Value::Ours { holder, owner } = waiter.value else { unreachable!("only readable entries are granted") };
        let owner = owner.unwrap_or_default();
        self.add_hold(server, NewHold { holder, owner, mode, token: fence, lease_ms });
        Ok(Advance::NoWaiter)
    }
}
