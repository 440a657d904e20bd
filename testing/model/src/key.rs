use super::answer::{Acquire, Listed, ListedHold, Occupied, QueueScan, ScriptError};
use super::holds::{HeldEntries, HeldEntry, Holds};
use super::queue::{
    Channel, Delivery, Entry, HandOff, Name, Unread, WaiterDeadlines, WaiterEntry, WaiterQueue, Waiters,
};
use super::server::{FENCE_MAX, FENCE_TTL_MS, LINE_TTL_MS, Server, VERSION};
use super::tokens::Tokens;
use super::value::Value;
use fencelock_core::{KeyTable, Mode};
use std::sync::Arc;

/// A renewal shortens a lease that is longer than the TTL by more than this.
const SLACK_MS: u64 = 1000;
/// The lock outlasts its last hold by this part of a lease.
const SHARE: u64 = 8;
/// What is left without its lock expires after this time.
const KEEP_MS: u64 = 60_000;
/// The number of holds that a reply lists.
const SHOWN: usize = 20;

/// The value of the user's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The value.
    pub value: Value,
    /// The expiry; `None` without a TTL.
    pub expires_ms: Option<u64>,
}

impl Lock {
    /// Extends the expiry. A lock without an expiry gets one, because it would persist after the death of its holder.
    pub(super) fn prolong(&mut self, server: &Server, ttl_ms: u64) -> Wrote {
        let end = server.now_ms() + ttl_ms;
        if self.expires_ms.is_some_and(|before| before >= end) {
            return Wrote::Nothing;
        }
        self.expires_ms = Some(end);
        Wrote::Something
    }

    /// Extends the expiry, or shortens one that is more than a second later than `ttl_ms` and the end that its holder knows.
    pub(super) fn renew(&mut self, server: &Server, ttl_ms: u64, known_ms: u64) {
        let left = self.ttl_ms(server).unwrap_or(0);
        self.expires_ms = Some(server.now_ms() + Self::renewed(left, ttl_ms, known_ms));
    }

    pub(super) fn renewed(left_ms: u64, ttl_ms: u64, known_ms: u64) -> u64 {
        let longest = ttl_ms.max(known_ms);
        let left_ms = if left_ms > longest + SLACK_MS { longest } else { left_ms };
        left_ms.max(ttl_ms)
    }

    pub(super) fn ttl_ms(&self, server: &Server) -> Option<u64> {
        self.expires_ms.map(|end| end - server.now_ms())
    }
}

/// The greatest fencing token so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The token.
    pub token: u64,
    /// When the server forgets it.
    pub expires_ms: u64,
}

/// The kind of hold that an eviction expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldKind {
    /// A lock of fencelock, with a fence.
    Ours,
    /// A lock of another program, with a TTL.
    Foreign,
    /// A lock of another program, without a TTL.
    Endless,
    /// All holds of a lock that several clients hold together.
    Shared,
}

/// The intent of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Acquires the lock, or fails.
    Try,
    /// Acquires the lock, or enters the queue.
    Enqueue,
    /// Reads the state of either.
    Poll,
}

/// The arguments of `acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The intent.
    pub intent: Intent,
    /// The id of the holder.
    pub holder: u128,
    /// The owner and label, written after the holder id.
    pub owner: Option<Arc<str>>,
    /// The TTL.
    pub ttl_ms: u64,
    /// The time of the client, as a fencing token.
    pub proposal: u64,
    /// Whether `proposal` is the token that a quorum proposes. Otherwise it only replaces the time if `TIME` is not permitted.
    pub proposed: bool,
    /// How long a waiter stays alive without a poll.
    pub life_ms: u64,
    /// The lease of a hand-off until it is confirmed.
    pub hand_off_ms: u64,
    /// The channel that wakes this client.
    pub channel: Option<Channel>,
    /// The number of requested fencing tokens, at least one.
    pub wanted: u64,
    /// The mode.
    pub mode: Mode,
}

impl Claim {
    /// The claim of a quorum at one node, without waiting. The times of waiters are those of production.
    pub const fn try_for(holder: u128, ttl_ms: u64, proposal: u64) -> Self {
        let (life_ms, hand_off_ms) = (KeyTable::WAITER_LIFE.as_secs() * 1000, KeyTable::CLAIM_TTL.as_secs() * 1000);
        Self {
            intent: Intent::Try,
            holder,
            owner: None,
            ttl_ms,
            proposal,
            proposed: true,
            life_ms,
            hand_off_ms,
            channel: None,
            wanted: 1,
            mode: Mode::Exclusive,
        }
    }

    pub(super) const fn tokens(&self, wanted: u64) -> Tokens {
        Tokens { client_us: self.proposal, proposed: self.proposed, wanted }
    }

    pub(super) fn value(&self) -> Value {
        Value::Ours { holder: self.holder, owner: self.owner.clone() }
    }
}

/// Whether a script has started to write. A server with full memory rejects the first write that needs memory, but then
/// lets the script continue, so that no step is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    Nothing,
    Something,
}

/// The result of offering a free lock to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advance {
    Mine,
    HandedOver,
    NoWaiter,
    /// The first waiter does not fit.
    Blocked,
    More,
    Unreadable,
}

impl From<(Advance, Option<Unread>)> for QueueScan {
    fn from((turn, unread): (Advance, Option<Unread>)) -> Self {
        Self { more: turn == Advance::More, unread }
    }
}

/// A key with all its data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct KeyModel {
    /// The lock; `None` if it is free.
    pub lock: Option<Lock>,
    /// The fence.
    pub fence: Option<Fence>,
    /// The queue.
    pub queue: WaiterQueue,
    /// The entries of the waiters.
    pub waiters: Waiters,
    /// Until when the waiters are alive.
    pub deadlines: WaiterDeadlines,
    /// The holds of a lock that several clients hold together. They count only while the value of the lock says so.
    pub holds: Holds,
    /// What is known about them.
    pub held: HeldEntries,
}

/// Shared steps.
impl KeyModel {
    /// Removes expired data, which stays removed even if the clock is set back later.
    pub fn expire(&mut self, server: &Server) {
        self.lock.take_if(|lock| server.is_over(lock.expires_ms));
        self.fence.take_if(|fence| server.is_over(Some(fence.expires_ms)));
        if server.is_over(self.queue.expires_ms) {
            self.queue = WaiterQueue::default();
        }
        if server.is_over(self.waiters.expires_ms) {
            self.waiters = Waiters::default();
        }
        if server.is_over(self.deadlines.expires_ms) {
            self.deadlines = WaiterDeadlines::default();
        }
        if server.is_over(self.holds.expires_ms) {
            self.holds = Holds::default();
        }
        if server.is_over(self.held.expires_ms) {
            self.held = HeldEntries::default();
        }
    }

    pub(super) fn lock_of(&mut self, holder: u128) -> Option<&mut Lock> {
        self.lock.as_mut().filter(|lock| lock.value.holder() == Some(holder))
    }

    /// The next fence, and the number of tokens in its block.
    pub(super) fn draw(
        &mut self,
        server: &Server,
        tokens: &Tokens,
        wrote: &mut Wrote,
    ) -> Result<(u64, u64), ScriptError> {
        let previous = self.fence.map_or(0, |fence| fence.token);
        let (token, count) = tokens.after(previous, server);
        if token > FENCE_MAX {
            if let Some(Fence { token, .. }) = self.fence {
                self.set_fence(server, token);
            }
            return Err(ScriptError::NoMoreFences);
        }
        take_memory(server, wrote)?;
        self.set_fence(server, token);
        Ok((token, count))
    }

    pub(super) fn set_fence(&mut self, server: &Server, token: u64) {
        self.fence = Some(Fence { token, expires_ms: server.now_ms() + FENCE_TTL_MS });
    }
}

/// A step that needs memory.
pub(super) fn take_memory(server: &Server, wrote: &mut Wrote) -> Result<(), ScriptError> {
    if server.full && *wrote == Wrote::Nothing {
        return Err(ScriptError::Full);
    }
    *wrote = Wrote::Something;
    Ok(())
}

/// A hold to add.
#[derive(Debug)]
pub(super) struct NewHold {
    pub(super) holder: u128,
    pub(super) owner: Arc<str>,
    pub(super) mode: Mode,
    pub(super) token: u64,
    pub(super) lease_ms: u64,
}

/// Locks that several clients hold together.
impl KeyModel {
    /// The mode of such a lock, with weight 1.
    pub(super) fn shared(&self) -> Option<Mode> {
        self.lock.as_ref().and_then(|lock| lock.value.shared_mode())
    }

    /// The rest of a hold that has not ended.
    pub(super) fn rest(&self, server: &Server, holder: u128) -> Option<u64> {
        self.holds.ends_ms.get(&holder)?.checked_sub(server.now_ms())
    }

    /// Whether a hold in this mode fits. Holds that have ended count until they are removed.
    pub fn fits(&self, mode: Mode) -> bool {
        match (self.shared(), mode) {
            (None, _) => self.lock.is_none(),
            (Some(Mode::Shared), Mode::Shared) => true,
            (Some(Mode::Permits { limit, .. }), Mode::Permits { weight, limit: other, .. }) => {
                // If the permits in use are unknown, none is free.
                limit == other && self.held.used.unwrap_or(limit.into()) + u64::from(weight) <= limit.into()
            }
            _ => false,
        }
    }

    /// Adds a hold; the first one if the lock is free.
    pub(super) fn add_hold(&mut self, server: &Server, hold: NewHold) {
        let NewHold { holder, owner, mode, token, lease_ms } = hold;
        let end_ms = server.now_ms() + lease_ms;
        if self.lock.is_none() {
            (self.holds, self.held) = (Holds::default(), HeldEntries::default());
            self.lock = Some(Lock { value: Value::shared(mode, token), expires_ms: Some(end_ms) });
        }
        self.holds.ends_ms.insert(holder, end_ms);
        let weight = if let Mode::Permits { weight, .. } = mode { weight } else { 1 };
        self.held.entries.insert(holder, HeldEntry { weight, token, owner });
        if let Mode::Permits { .. } = mode {
            self.held.used = Some(self.held.used.unwrap_or(0) + u64::from(weight));
        }
        self.outlast(server, lease_ms);
    }

    /// Sets the rest of a hold.
    pub(super) fn prolong_hold(&mut self, server: &Server, holder: u128, left_ms: u64) {
        let now_ms = server.now_ms();
        let kept = self.holds.expires_ms.unwrap_or(0).max(now_ms + left_ms + KEEP_MS);
        self.holds.expires_ms = Some(kept);
        self.holds.ends_ms.insert(holder, now_ms + left_ms);
        self.outlast(server, left_ms);
    }

    /// The lock and all that belongs to it last until a hold with this rest ends.
    fn outlast(&mut self, server: &Server, left_ms: u64) {
        let now_ms = server.now_ms();
        let Some(lock) = &mut self.lock else { return };
        if lock.expires_ms.is_some_and(|end| end > now_ms + left_ms) {
            return;
        }
        let end_ms = now_ms + left_ms + left_ms / SHARE;
        lock.expires_ms = Some(end_ms);
        self.holds.expires_ms = Some(end_ms + KEEP_MS);
        if !self.held.entries.is_empty() || self.held.used.is_some() {
            self.held.expires_ms = Some(end_ms + KEEP_MS);
        }
    }

    /// The token of a hold. If its entry is gone, it is written again with a new one.
    pub(super) fn token_of(&mut self, server: &Server, claim: &Claim, wrote: &mut Wrote) -> Result<u64, ScriptError> {
        if let Some(entry) = self.held.entries.get(&claim.holder) {
            return Ok(entry.token);
        }
        let tokens = Tokens { client_us: claim.proposal, proposed: false, wanted: 1 };
        let token = self.draw(server, &tokens, wrote)?.0;
        let weight = if let Mode::Permits { weight, .. } = claim.mode { weight } else { 1 };
        let owner = claim.owner.clone().unwrap_or_default();
        self.held.entries.insert(claim.holder, HeldEntry { weight, token, owner });
        Ok(token)
    }

    /// Removes holds, and returns their permits.
    pub(super) fn remove_holds(&mut self, holders: &[u128]) {
        let mut freed = 0;
        for holder in holders {
            self.holds.remove(*holder);
            freed += self.held.entries.remove(holder).map_or(0, |entry| u64::from(entry.weight));
        }
        if let (Some(Mode::Permits { .. }), Some(used)) = (self.shared(), &mut self.held.used) {
            *used = used.saturating_sub(freed);
        }
        if self.held.entries.is_empty() && self.held.used.is_none() {
            self.held.expires_ms = None;
        }
    }

    /// Removes holds that have ended, at most `cap`; the lock too if no hold is left. Returns whether there may be more.
    pub(super) fn bury(&mut self, server: &Server, wrote: &mut Wrote) -> bool {
        let now_ms = server.now_ms();
        if self.holds.ends_ms.values().all(|end| *end < now_ms) {
            *wrote = Wrote::Something;
            self.forget_holds();
            return false;
        }
        let mut ended: Vec<_> = self.holds.ends_ms.iter().map(|(id, end)| (*end, *id)).collect();
        ended.retain(|(end, _)| *end < now_ms);
        ended.sort_unstable();
        ended.truncate(server.cap);
        if !ended.is_empty() {
            *wrote = Wrote::Something;
            self.remove_holds(&ended.iter().map(|(_, id)| *id).collect::<Vec<_>>());
        }
        ended.len() == server.cap
    }

    /// Deletes the lock and its holds.
    pub(super) fn forget_holds(&mut self) {
        (self.lock, self.holds, self.held) = (None, Holds::default(), HeldEntries::default());
    }

    /// The description of the lock in replies, if several clients hold it and a hold has not ended.
    pub(super) fn listed(&self, server: &Server) -> Option<Listed> {
        self.shared()?;
        let value = self.lock.as_ref()?.value.clone();
        let live = self.holds.live(server.now_ms());
        let hold = |(end, holder): &(u64, u128)| ListedHold {
            holder: *holder,
            rest_ms: end - server.now_ms(),
            entry: self.held.entries.get(holder).cloned(),
        };
        let holds: Vec<_> = live.iter().take(SHOWN).map(hold).collect();
        (!holds.is_empty()).then_some(Listed { value, count: live.len() as u64, holds })
    }
}

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
            self.queue.append(me.clone(), clock_ms)
        };
        take_memory(server, &mut wrote)?;
        self.deadlines.until_ms.insert(me.clone(), clock_ms + claim.life_ms);
        let (ttl_ms, wanted, channel) = (claim.ttl_ms, claim.wanted, claim.channel);
        let version = match claim.mode {
            Mode::Shared => format!("{VERSION} r 1 0"),
            Mode::Permits { weight, limit, .. } => format!("{VERSION} s {weight} {limit}"),
            _ => VERSION.to_owned(),
        };
        let waiter = WaiterEntry { ttl_ms, wanted, channel, value: claim.value(), version: version.into() };
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
            let requested = |waiter: &WaiterEntry| if server.time_refused { Mode::Exclusive } else { waiter.mode() };
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
        (to, waiter, mode): (Name, WaiterEntry, Mode),
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
