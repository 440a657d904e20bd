//! The scripts.

use super::answer::{
    Acquire, Availability, Downgrade, Evict, Inspect, Listed, Occupied, QueueScan, Raise, Release, Renew, Resize,
    ScriptError,
};
use super::key::{Advance, Claim, HoldKind, Intent, KeyModel, Lock, NewHold, Offer, Wrote, take_memory};
use super::marker::Gate;
use super::queue::{Delivery, Entry, HandOff, Name, Unread, WaiterEntry};
use super::server::{FENCE_TTL_MS, Server, VERSION};
use super::value::Value;
use fencelock_core::Mode;

/// `acquire.lua`.
impl KeyModel {
    /// Acquires the lock, enters the queue, or reads the state of either.
    ///
    /// A repeated claim finds itself as the holder, and changes nothing: only a poll extends the lease. Room for a hold is
    /// offered to the queue first; the claim gets it if no live waiter is in front.
    pub fn acquire(
        &mut self,
        server: &Server,
        claim: &Claim,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Acquire, ScriptError> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Acquire::Refused(refusal.clone()));
        }
        let claim = &self.by_entry(claim);
        let mut wrote = Wrote::Nothing;
        if self.lock_of(claim.holder).is_some() {
            return self.repeated(server, claim, &mut wrote);
        }
        if server.time_refused && claim.mode != Mode::Exclusive {
            return Ok(Acquire::NoClock);
        }
        // Without the time, an exclusive claim sees a shared lock as the value of another program.
        let is_shared = self.shared().is_some() && !server.time_refused;
        if is_shared {
            if self.rest(server, claim.holder).is_some() {
                return self.repeated(server, claim, &mut wrote);
            }
            if self.bury(server, &mut wrote) {
                return Ok(Acquire::More(None));
            }
        }
        let mut unread = None;
        if self.lock.is_none() || is_shared {
            let answer;
            (answer, unread) = self.enter(server, claim, &mut wrote, publish)?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        if claim.mode != Mode::Exclusive
            && claim.intent != Intent::Poll
            && self.queue.rank(&Name::Holder(claim.holder)).is_none()
            && let Some(other) = self.last_mode(server).filter(|other| claim.mode.conflicts(*other))
        {
            return Ok(Acquire::Conflict(other, unread));
        }
        if claim.intent == Intent::Try {
            return Ok(Acquire::Busy(Occupied { unread, ..self.occupied(server) }));
        }
        self.wait(server, claim, wrote, unread)
    }

    /// A claim of a holder.
    fn repeated(&mut self, server: &Server, claim: &Claim, wrote: &mut Wrote) -> Result<Acquire, ScriptError> {
        if claim.intent != Intent::Poll {
            return Ok(Acquire::Yours);
        }
        let fence = if let Some(lock) = self.lock_of(claim.holder) {
            *wrote = lock.prolong(server, claim.ttl_ms);
            match &self.fence {
                Some(fence) => fence.token,
                None => self.draw(server, &claim.tokens(1), wrote)?.0,
            }
        } else {
            if self.rest(server, claim.holder).is_some_and(|rest| rest < claim.ttl_ms) {
                *wrote = Wrote::Something;
                self.prolong_hold(server, claim.holder, claim.ttl_ms);
            }
            self.token_of(server, claim, wrote)?
        };
        Ok(Acquire::Granted { fence, count: 1, unread: None })
    }

    /// Serves the queue, then the claim. `None` if it was not granted.
    fn enter(
        &mut self,
        server: &Server,
        claim: &Claim,
        wrote: &mut Wrote,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<(Option<Acquire>, Option<Unread>), ScriptError> {
        let me = Name::Holder(claim.holder);
        let mut offer = Offer::by(server, claim);
        let (turn, mut unread) = self.advance(server, Some((&me, claim.mode)), &mut offer, wrote, publish)?;
        if let Some(present) = self.shared().filter(|present| claim.mode.conflicts(*present)) {
            if self.queue.rank(&me).is_some() {
                self.forget(&me);
                *wrote = Wrote::Something;
            }
            if turn == Advance::Blocked {
                self.advance(server, None, &mut offer, wrote, publish)?;
            }
            return Ok((Some(Acquire::Conflict(present, unread.clone())), unread));
        }
        match turn {
            Advance::More => return Ok((Some(Acquire::More(unread.clone())), unread)),
            Advance::Unreadable => return Ok((Some(Acquire::Unreadable(unread.clone())), unread)),
            Advance::HandedOver | Advance::Blocked => return Ok((None, unread)),
            Advance::Mine | Advance::NoWaiter => {}
        }
        if !self.fits(claim.mode) {
            return Ok((None, unread));
        }
        if turn != Advance::Mine && claim.intent == Intent::Poll {
            return Ok((Some(Acquire::Gone(unread.clone())), unread));
        }
        let (fence, count) = self.draw(server, &claim.tokens(claim.wanted), wrote)?;
        if claim.mode == Mode::Exclusive {
            self.lock = Some(Lock { value: claim.value(), expires_ms: Some(server.now_ms() + claim.ttl_ms) });
        } else {
            let owner = claim.owner.clone().unwrap_or_default();
            let (holder, mode, token, lease_ms) = (claim.holder, claim.mode, fence, claim.ttl_ms);
            self.add_hold(server, NewHold { holder, owner, mode, token, lease_ms });
            if turn == Advance::Mine {
                let (_, found) = self.advance(server, None, &mut offer, wrote, publish)?;
                unread = unread.or(found);
            }
        }
        Ok((Some(Acquire::Granted { fence, count, unread: unread.clone() }), unread))
    }

    /// What the last waiter requests, if it is alive and readable.
    fn last_mode(&self, server: &Server) -> Option<Mode> {
        let (_, name) = self.queue.members.last()?;
        let until_ms = self.deadlines.until_ms.get(name)?;
        let waiter = self.waiters.read(name).filter(|_| until_ms * 1000 > server.now_us)?;
        Some(waiter.mode())
    }
}

/// The scripts that end a hold, or the exclusive one.
impl KeyModel {
    /// `release.lua`: releases the hold, or leaves the queue. The queue is then served, if the server may grant.
    pub fn release(
        &mut self,
        server: &Server,
        holder: u128,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Release, ScriptError> {
        self.expire(server);
        let (mut was_held, mut more) = (self.lock_of(holder).is_some(), false);
        let is_shared = self.shared().is_some() && !server.time_refused;
        if was_held {
            self.lock = None;
        } else if is_shared {
            was_held = self.rest(server, holder).is_some();
            if was_held {
                self.remove_holds(&[holder]);
            }
            more = self.bury(server, &mut Wrote::Something);
        } else if self.shared().is_some() && self.holds.ends_ms.contains_key(&holder) {
            return Err(ScriptError::Time);
        }
        let me = Name::Holder(holder);
        if !was_held && self.queue.rank(&me).is_some() {
            self.forget(&me);
        }
        if let Some(lock) = self.lock.as_ref().filter(|_| !is_shared) {
            return Ok(Release::Taken(lock.value.clone()));
        }
        let others = if was_held { None } else { self.listed(server) };
        // If no client waits, it does not matter whether the server may grant.
        let mut left = if self.queue.members.is_empty() {
            QueueScan::SKIPPED
        } else {
            self.serve(server, proposal, hand_off_ms, gate, publish)?
        };
        left.more |= more;
        Ok(match others {
            _ if was_held => Release::Released(left),
            Some(others) => Release::Shared(others, left),
            None => Release::Absent(left),
        })
    }

    /// Serves the queue, if the server may grant.
    fn serve(
        &mut self,
        server: &Server,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<QueueScan, ScriptError> {
        if gate.refusal()?.is_some() {
            return Ok(QueueScan::SKIPPED);
        }
        let mut offer = Offer::new(server, proposal, hand_off_ms);
        Ok(self.advance(server, None, &mut offer, &mut Wrote::Something, publish)?.into())
    }

    /// `evict.lua`: ends a hold, if it is still the hold that was inspected and of the same kind.
    pub fn evict(
        &mut self,
        server: &Server,
        (seen, kind): (&Value, HoldKind),
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Evict, ScriptError> {
        self.expire(server);
        let Some(lock) = self.lock.as_ref().filter(|lock| lock.value == *seen) else { return Ok(Evict::AnotherByNow) };
        let is_shared = self.shared().is_some();
        let is_string = seen.kind().is_empty();
        let is_so = match kind {
            HoldKind::Ours => self.fence.is_some(),
            HoldKind::Foreign => lock.expires_ms.is_some(),
            HoldKind::Endless => lock.expires_ms.is_none(),
            HoldKind::Shared => is_shared,
        };
        if !is_string || !is_so || seen.is_later() || (is_shared && kind != HoldKind::Shared) {
            return Ok(Evict::AnotherByNow);
        }
        if is_shared {
            self.forget_holds();
        }
        self.lock = None;
        self.serve(server, proposal, hand_off_ms, gate, publish).map(Evict::Evicted)
    }

    /// `evict.lua`: ends some of several holds, those that still have these tokens.
    pub fn evict_holds(
        &mut self,
        server: &Server,
        seen: &[(u128, u64)],
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Evict, ScriptError> {
        self.expire(server);
        let is_same = |(id, token): &&(u128, u64)| self.held.entries.get(id).is_some_and(|entry| entry.token == *token);
        let found: Vec<_> = seen.iter().filter(is_same).map(|(id, _)| *id).collect();
        if self.shared().is_none() || found.is_empty() {
            return Ok(Evict::AnotherByNow);
        }
        if server.time_refused {
            return Err(ScriptError::Time);
        }
        self.remove_holds(&found);
        self.bury(server, &mut Wrote::Something);
        self.serve(server, proposal, hand_off_ms, gate, publish).map(Evict::Evicted)
    }

    /// `downgrade.lua`: an exclusive hold becomes the first hold of a shared lock, with a token of its own.
    pub fn downgrade(
        &mut self,
        server: &Server,
        claim: &Claim,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Downgrade, ScriptError> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Downgrade::Refused(refusal.clone()));
        }
        let Some(lock) = &self.lock else { return Ok(Downgrade::Absent) };
        let (value, left_ms) = (lock.value.clone(), lock.ttl_ms(server).unwrap_or(0));
        let present = self.shared();
        if present.is_none() && value.holder() != Some(claim.holder) {
            return Ok(Downgrade::Taken(value));
        }
        if server.time_refused {
            return Ok(Downgrade::NoClock);
        }
        let mut wrote = Wrote::Nothing;
        let fence = if let Some(present) = present {
            let Some(rest) = self.rest(server, claim.holder).filter(|_| present == Mode::Shared) else {
                return Ok(self.listed(server).map_or(Downgrade::Absent, Downgrade::Shared));
            };
            if rest < claim.ttl_ms {
                wrote = Wrote::Something;
                self.prolong_hold(server, claim.holder, claim.ttl_ms);
            }
            let claim = Claim { owner: None, mode: Mode::Shared, ..claim.clone() };
            self.token_of(server, &claim, &mut wrote)?
        } else {
            let (token, _) = self.draw(server, &claim.tokens(1), &mut wrote)?;
            let Value::Ours { holder, owner } = value else { unreachable!("it was compared") };
            self.lock = None;
            let owner = owner.unwrap_or_default();
            let (mode, lease_ms) = (Mode::Shared, claim.ttl_ms.max(left_ms));
            self.add_hold(server, NewHold { holder, owner, mode, token, lease_ms });
            token
        };
        let mut offer = Offer::new(server, claim.proposal, claim.hand_off_ms);
        let scan = self.advance(server, None, &mut offer, &mut wrote, publish)?.into();
        Ok(Downgrade::Downgraded { fence, scan })
    }
}

/// A holder continues, or gets another token.
impl KeyModel {
    /// `raise.lua`: raises the fence of a hold to this token, unless it was granted with a greater one. The fence of the key is at
    /// least this token then.
    pub fn raise(&mut self, server: &Server, holder: u128, to: u64, gate: &Gate) -> Result<Raise, ScriptError> {
        self.expire(server);
        if gate.refusal()?.is_some() {
            return Ok(Raise::Refused);
        }
        let fence = self.fence.map_or(0, |fence| fence.token);
        let granted = if self.lock_of(holder).is_some() {
            Some(fence)
        } else if self.shared().is_some() && server.time_refused {
            return Err(ScriptError::Time);
        } else {
            let is_held = self.shared().is_some() && self.rest(server, holder).is_some();
            self.held.entries.get(&holder).filter(|_| is_held).map(|entry| entry.token)
        };
        if granted.is_none_or(|granted| granted > to) {
            return Ok(Raise::Refused);
        }
        take_memory(server, &mut Wrote::Nothing)?;
        self.set_fence(server, fence.max(to));
        if self.shared().is_some()
            && let Some(entry) = self.held.entries.get_mut(&holder)
        {
            entry.token = to;
        }
        Ok(Raise::Acked)
    }

    /// `renew.lua`: a held lock has at least this TTL from now, and never less than its holder knows. It creates no lock.
    pub fn renew(&mut self, server: &Server, holder: u128, ttl_ms: u64, known_ms: u64) -> Result<Renew, ScriptError> {
        self.expire(server);
        let waiters = self.living(server);
        if self.shared().is_some() {
            if server.time_refused {
                return Err(ScriptError::Time);
            }
            let Some(left) = self.rest(server, holder) else {
                return Ok(self.listed(server).map_or(Renew::Absent, Renew::Shared));
            };
            self.prolong_hold(server, holder, Lock::renewed(left, ttl_ms, known_ms));
        } else if let Some(lock) = self.lock_of(holder) {
            lock.renew(server, ttl_ms, known_ms);
        } else {
            return Ok(self.lock.as_ref().map_or(Renew::Absent, |lock| Renew::Taken(lock.value.clone())));
        }
        if let Some(fence) = &mut self.fence {
            fence.expires_ms = server.now_ms() + FENCE_TTL_MS;
        }
        Ok(Renew::Renewed { waiters })
    }
}

/// What a client receives about the holders.
impl KeyModel {
    /// `inspect.lua` with a quarantine check and those of the first `named` waiters that are alive: a server that may have lost data never reports that a lock is free.
    pub fn checked_inspect(&mut self, server: &Server, named: usize, gate: &Gate) -> Result<Availability, ScriptError> {
        self.expire(server);
        if self.shared().is_some() && server.time_refused {
            return Err(ScriptError::Time);
        }
        if let Some(seen) = self.inspect(server) {
            return Ok(Availability::Held(Inspect { named: self.named(server, named), ..seen }));
        }
        let free = || Availability::Free { waiters: self.living(server) };
        Ok(gate.refusal()?.map_or_else(free, |refusal| Availability::Refused(refusal.clone())))
    }

    /// `inspect.lua` without the names of waiters: the holder; `None` if the lock is free.
    pub fn inspect(&mut self, server: &Server) -> Option<Inspect> {
        self.expire(server);
        let lock = self.lock.as_ref()?;
        let fence = self.fence.map(|fence| fence.token);
        let waiters = self.living(server);
        let (by, mut ttl_ms, mut listed) = (lock.value.clone(), lock.ttl_ms(server), None);
        if self.shared().is_some() {
            // The key has no holder any more.
            let holds = self.listed(server)?;
            (ttl_ms, listed) = (holds.first_rest_ms(), Some(holds));
        }
        Some(Inspect { by, ttl_ms, fence, waiters, named: Vec::new(), listed })
    }

    fn named(&self, server: &Server, most: usize) -> Vec<(Option<i64>, WaiterEntry)> {
        if server.time_refused || self.living(server) == 0 {
            return Vec::new();
        }
        let now_ms = server.now_ms();
        let is_alive = |name: &Name| self.deadlines.until_ms.get(name).is_some_and(|until_ms| *until_ms > now_ms);
        let first = self.queue.members.iter().take(most + server.cap).filter(|(_, name)| is_alive(name));
        let read = first.filter_map(|(ticket, name)| Some((ticket, self.waiters.read(name)?.clone())));
        let since =
            |ticket: u64| ticket.is_multiple_of(1000).then(|| now_ms.cast_signed() - (ticket / 1000).cast_signed());
        read.take(most).map(|(ticket, entry)| (since(*ticket), entry)).collect()
    }

    pub(super) fn occupied(&self, server: &Server) -> Occupied {
        let lock = self.lock.as_ref().unwrap_or_else(|| unreachable!("only of a lock that is not free"));
        let last_fence = self.fence.map_or(0, |fence| fence.token);
        // Without the time, the holders are not listed.
        let listed = if server.time_refused { None } else { self.listed(server) };
        let ttl_ms = listed.as_ref().map_or_else(|| lock.ttl_ms(server), Listed::first_rest_ms);
        Occupied { last_fence, ttl_ms, by: lock.value.clone(), listed, unread: None }
    }
}

/// What an earlier call of the same change has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Continued {
    /// The limit before it.
    pub before: u32,
    /// The ticket of the last waiter that it examined.
    pub ticket: u64,
}

/// The limit of a semaphore that is in use.
impl KeyModel {
    /// `resize.lua`: changes the limit. Holders stay, waiters wait for permits of the new limit, or leave if they want more than there
    /// are, and those that fit now are granted.
    #[allow(clippy::too_many_arguments, reason = "the arguments of the script")]
    pub fn resize(
        &mut self,
        server: &Server,
        limit: u32,
        continued: Option<Continued>,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Delivery,
    ) -> Result<Resize, ScriptError> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Resize::Refused(refusal.clone()));
        }
        let Some(lock) = &self.lock else { return Ok(Resize::Absent(None)) };
        let Some(present) = self.shared() else { return Ok(Resize::Taken(lock.value.clone())) };
        if server.time_refused {
            return Ok(Resize::NoClock);
        }
        let Some(now) = present.limit().filter(|now| continued.is_none() || *now == limit) else {
            return Ok(self.listed(server).map_or(Resize::Absent(None), Resize::Shared));
        };
        let (mut wrote, mut offer) = (Wrote::Nothing, Offer::new(server, proposal, hand_off_ms));
        let mut more = self.bury(server, &mut wrote);
        if self.lock.is_none() {
            let (_, unread) = self.advance(server, None, &mut offer, &mut wrote, publish)?;
            return Ok(Resize::Absent(unread));
        }
        let Continued { before, mut ticket } = continued.unwrap_or(Continued { before: now, ticket: 0 });
        if now != limit {
            take_memory(server, &mut wrote)?;
            self.rename(limit);
        }
        if before != limit {
            let waiting = self.queue.members.iter().filter(|(at, _)| *at > ticket).take(server.cap).cloned();
            let waiting: Vec<_> = waiting.collect();
            for (at, name) in &waiting {
                self.take_over(server, name, before, limit, &mut wrote)?;
                ticket = *at;
            }
            more |= waiting.len() == server.cap;
        }
        let scan: QueueScan = self.advance(server, None, &mut offer, &mut wrote, publish)?.into();
        let held = self.listed(server).map_or(0, |listed| listed.count);
        let used = self.held.used.unwrap_or(limit.into());
        Ok(Resize::Resized { before, used, held, ticket, scan: QueueScan { more: more || scan.more, ..scan } })
    }

    /// The value of the lock names the limit.
    fn rename(&mut self, limit: u32) {
        if let Some(lock) = &mut self.lock
            && let Value::Shared { limit: present, .. } = &mut lock.value
        {
            *present = Some(limit);
        }
    }

    /// Lets a waiter wait for permits of the new limit. One that can never fit leaves, because it would give a free key the limit
    /// before.
    fn take_over(
        &mut self,
        server: &Server,
        name: &Name,
        before: u32,
        limit: u32,
        wrote: &mut Wrote,
    ) -> Result<(), ScriptError> {
        let Some(Entry::Waiter(waiter)) = self.waiters.entries.get_mut(name) else { return Ok(()) };
        let is_readable = waiter.value.holder().map(Name::Holder).as_ref() == Some(name);
        let mode = waiter.mode();
        match mode.taken_over(before, limit) {
            _ if !is_readable => {}
            None => {
                *wrote = Wrote::Something;
                self.forget(name);
            }
            Some(resized) if resized != mode => {
                take_memory(server, wrote)?;
                waiter.version = format!("{VERSION} s {} {limit}", mode.weight()).into();
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// A waiter of a semaphore that was resized waits for permits of the new limit, although its client claims them by the old one.
    fn by_entry(&self, claim: &Claim) -> Claim {
        let written = self.waiters.read(&Name::Holder(claim.holder)).and_then(|waiter| waiter.mode().limit());
        let limit = written.filter(|limit| claim.mode.weight() <= *limit);
        let mode = limit.map_or(claim.mode, |limit| claim.mode.resized(limit));
        Claim { mode, ..claim.clone() }
    }
}
