use super::ClockReading;
use crate::{
    Acquire, Claim, ClearCompletion, Completion, CompletionRead, Downgrade, Event, Eviction, Expiry, Fault,
    FencingToken, HandOffBounds, Holder, HolderId, HolderInfo, Holders, Holding, Intent, Key, KeyTable, Liveness, Mode,
    Moment, Occupant, Occupied, Raise, Release, Renew, Renewal, Resize, Resized, TokenBlock, Unknown, WaiterInfo,
    WriteCompletion, next_block, next_proposed_block, raise_fence,
};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

/// The state of a key. A free key keeps its state only while tasks wait, and with leases its fence.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct KeyState {
    /// The last token.
    pub(super) fence: u64,
    /// None, one exclusive hold, or a row of holds of one class, in the order of their grants.
    holds: Vec<Hold>,
    queue: VecDeque<Waiter>,
    /// It stays until it is cleared: one for each key is small.
    completion: Option<Box<Completion>>,
    /// The holder whose end has a subscriber.
    watched: Option<HolderId>,
    /// The backend has reported that no client waits, and will announce the next waiter.
    announces: bool,
    /// The key is among those that are removed when their last token is no longer young.
    pub(super) is_listed: bool,
}

#[derive(Debug, Clone, Hash)]
struct Hold {
    holder: Holder,
    mode: Mode,
    fence: FencingToken,
    since: Moment,
    until: Moment,
    /// Of the latest renewal.
    ttl: Duration,
}

#[derive(Debug, Clone, Hash)]
struct Waiter {
    holder: Holder,
    mode: Mode,
    ttl: Duration,
    block: NonZeroU32,
    arrived: Moment,
    seen: Moment,
}

/// One atomic step on one key: what each request does, and what it is answered.
///
/// The first waiter that does not fit stops the queue, in every mode: so no waiter is overtaken, and no writer and no large weight
/// starves. Every request that can free the key or permits offers them to the queue.
#[derive(Debug)]
pub struct KeyStep<'a> {
    pub(super) state: &'a mut KeyState,
    pub(super) backend: &'a str,
    pub(super) leases: bool,
    pub(super) key: &'a Key,
    pub(super) at: ClockReading,
    pub(super) events: &'a mut Vec<Event>,
}

impl KeyStep<'_> {
    /// Grants the key, or queues or refuses the claim. `proposal` is the token that a quorum proposes.
    ///
    /// # Errors
    /// No token is left.
    pub fn claim(&mut self, claim: &Claim, proposal: Option<u64>) -> Result<Acquire, Unknown> {
        let (me, mut mode, now) = (claim.holder.id, claim.mode, self.at.now);
        if let Some(waiter) = self.state.queue.iter_mut().find(|waiter| waiter.holder.id == me) {
            mode = waiter.mode_of(mode);
            (waiter.seen, waiter.block, waiter.mode) = (now, claim.block, mode);
        }
        if let Some(present) = self.conflict(me, mode) {
            self.state.queue.retain(|waiter| waiter.holder.id != me);
            self.advance(None)?;
            return Ok(Acquire::Conflict(present));
        }
        let mut granted = self.advance(Some(me))?;
        let is_free = self.state.queue.is_empty() && self.state.fits(mode) && self.state.hold_of(&me).is_none();
        if is_free && !claim.is_poll() {
            let tokens = self.draw(proposal, claim.block)?;
            self.grant(claim.holder.clone(), mode, claim.ttl.get(), tokens);
            granted = Some(tokens);
        }
        if let Some(last) = self.extend(&me, claim.ttl.get()) {
            // The client may have used some tokens before it repeats the claim, but none after the last.
            return Ok(Acquire::Granted { tokens: granted.unwrap_or(last.into()) });
        }
        Ok(self.wait(claim))
    }

    /// Extends the lease of a holder.
    pub fn renew(&mut self, renewal: &Renewal) -> Renew {
        if self.extend(&renewal.holder, renewal.ttl.get()).is_none() {
            return self.state.holders().map_or(Renew::Absent, Renew::TakenBy);
        }
        let waiters = self.state.waiters();
        self.state.announces |= waiters == 0;
        Renew::Renewed { waiters }
    }

    /// Ends the hold of a holder, or its wait.
    ///
    /// # Errors
    /// No token is left for the next waiter.
    pub fn release(&mut self, holder: &HolderId) -> Result<Release, Unknown> {
        self.state.queue.retain(|waiter| waiter.holder.id != *holder);
        let released = self.state.end(holder);
        let others = self.state.holders();
        self.advance(None)?;
        Ok(if released { Release::Released } else { others.map_or(Release::Absent, Release::TakenBy) })
    }

    /// Turns an exclusive hold into a shared one. A repeated request finds it shared and returns the same token.
    /// `proposal` is the token that a quorum proposes.
    ///
    /// # Errors
    /// No token is left.
    pub fn downgrade(&mut self, renewal: &Renewal, proposal: Option<u64>) -> Result<Downgrade, Unknown> {
        let mode = self.state.hold_of(&renewal.holder).map(|held| held.mode);
        if !matches!(mode, Some(Mode::Exclusive | Mode::Shared)) {
            return Ok(self.state.holders().map_or(Downgrade::Absent, Downgrade::TakenBy));
        }
        if mode == Some(Mode::Exclusive) {
            let fence = self.draw(proposal, NonZeroU32::MIN)?.last();
            let held = self.state.hold_of(&renewal.holder).into_iter();
            held.for_each(|held| (held.mode, held.fence) = (Mode::Shared, fence));
        }
        let Some(token) = self.extend(&renewal.holder, renewal.ttl.get()) else { return Ok(Downgrade::Absent) };
        self.advance(None)?;
        Ok(Downgrade::Downgraded { token })
    }

    /// Changes the limit of a semaphore in use. Its holders keep their permits.
    ///
    /// # Errors
    /// [`Resize::check`], or no token is left for the next waiter.
    pub fn resize(&mut self, limit: u32) -> Result<Resize, Unknown> {
        Resize::check(self.backend, limit)?;
        let (Some(mode), Some(holders)) = (self.state.mode(), self.state.holders()) else { return Ok(Resize::Free) };
        let Some(before) = mode.limit() else { return Ok(Resize::OtherMode { mode, holders }) };
        self.state.holds.iter_mut().for_each(|held| held.mode = held.mode.resized(limit));
        self.state.queue.retain_mut(|waiter| {
            let mode = waiter.mode.taken_over(before, limit);
            waiter.mode = mode.unwrap_or(waiter.mode);
            mode.is_some()
        });
        self.advance(None)?;
        let holders = u32::try_from(self.state.holds.len()).unwrap_or(u32::MAX);
        Ok(Resize::Resized(Resized::new(before, limit, self.state.used(), holders)))
    }

    /// Raises the token of a hold, and with it that of the key, to that of a quorum.
    pub fn raise(&mut self, holder: &HolderId, to: FencingToken) -> Raise {
        let last = self.state.fence;
        let Some(held) = self.state.hold_of(holder) else { return Raise::Refused };
        let Some(fence) = raise_fence(Some(held.fence.get()), last, to) else { return Raise::Refused };
        (held.fence, self.state.fence) = (to, fence);
        Raise::Acked
    }

    /// Ends the holds that `seen` lists and that have not ended since.
    ///
    /// # Errors
    /// No token is left for the next waiter.
    pub fn evict(&mut self, seen: &Holding) -> Result<Eviction, Unknown> {
        let listed = seen.holders.iter().filter_map(HolderInfo::holder_id);
        if listed.filter(|holder| self.state.end(holder)).count() == 0 {
            return Ok(Eviction::Changed(self.inspect().map(Box::new)));
        }
        self.events.push(Event::Changed { key: self.key.clone() });
        self.advance(None)?;
        Ok(Eviction::Evicted)
    }

    /// Who holds the key.
    pub fn inspect(&self) -> Option<Holding> {
        self.state.holding(self.key, self.at.now)
    }

    /// [`Event::Changed`] follows when the hold ends that is the oldest one now; at once, if the key is free.
    pub fn watch(&mut self) {
        self.state.watched = self.state.holds.first().map(|held| held.holder.id);
        if self.state.watched.is_none() {
            self.events.push(Event::Changed { key: self.key.clone() });
        }
    }

    /// The completion of the key.
    pub fn read_completion(&self) -> CompletionRead {
        CompletionRead::new(self.state.completion.as_deref().cloned(), self.at.wall_micros)
    }

    /// Stores a completion if `holder` has the key alone.
    pub fn write_completion(&mut self, holder: &HolderId, completion: &Completion) -> WriteCompletion {
        if self.state.hold_of(holder).is_none_or(|held| held.mode != Mode::Exclusive) {
            return WriteCompletion::NotHeld;
        }
        self.restore_completion(completion);
        WriteCompletion::Written
    }

    /// Stores a completion that a majority of nodes may not have.
    pub fn restore_completion(&mut self, completion: &Completion) {
        let (stored, completion) = (&mut self.state.completion, completion.clone());
        *stored = Some(Box::new(match stored.take() {
            Some(before) => before.merge(completion, self.at.wall_micros),
            None => completion,
        }));
    }

    /// Removes the completion, unless it is later than `seen`.
    pub fn clear_completion(&mut self, seen: &Completion) -> ClearCompletion {
        match self.state.completion.take_if(|stored| stored.token <= seen.token) {
            Some(_) => ClearCompletion::Cleared,
            None if self.state.completion.is_some() => ClearCompletion::Changed,
            None => ClearCompletion::Absent,
        }
    }
}

/// The parts of the requests.
impl KeyStep<'_> {
    /// Ends the holds that are over.
    pub(super) fn expire(&mut self) {
        self.state.holds.retain(|held| self.at.now < held.until);
    }

    /// Reports the end of the watched hold. After that it is no longer watched.
    pub(super) fn report_watched_end(&mut self) {
        let holds = &self.state.holds;
        if self.state.watched.take_if(|holder| holds.iter().all(|held| held.holder.id != *holder)).is_some() {
            self.events.push(Event::Changed { key: self.key.clone() });
        }
    }

    /// The mode in which the key is held or waited for by others and that never fits the mode of this claim.
    fn conflict(&mut self, me: HolderId, mode: Mode) -> Option<Mode> {
        if mode == Mode::Exclusive || self.state.hold_of(&me).is_some() {
            return None;
        }
        let others = self.state.queue.iter().filter(|waiter| waiter.holder.id != me && self.is_alive(waiter));
        let mut present = self.state.mode().into_iter().chain(others.map(|waiter| waiter.mode));
        present.find(|present| present.conflicts(mode))
    }

    /// The answer to a claim that does not fit.
    fn wait(&mut self, claim: &Claim) -> Acquire {
        let (state, now) = (&mut *self.state, self.at.now);
        let Some(occupied) = state.occupied(now) else { return Acquire::Gone };
        let position = state.queue.iter().position(|waiter| waiter.holder.id == claim.holder.id);
        let position = match (position, claim.intent) {
            (None, Intent::Poll) => return Acquire::Gone,
            (_, Intent::Try) => return Acquire::Busy(occupied),
            (Some(position), _) => position,
            (None, Intent::Enqueue) => {
                let (holder, mode, ttl) = (claim.holder.clone(), claim.mode, claim.ttl.get());
                let block = claim.block;
                state.queue.push_back(Waiter { holder, mode, ttl, block, arrived: now, seen: now });
                if std::mem::take(&mut state.announces) {
                    self.events.push(Event::Queued { key: self.key.clone() });
                }
                state.queue.len() - 1
            }
        };
        let ahead = u32::try_from(position).unwrap_or(u32::MAX);
        Acquire::Queued { ahead, occupied, hand_off: HandOffBounds::new(state.fence, None) }
    }

    /// Grants the key to the live waiters at the head of the queue that fit, and sends them their tokens. Returns the tokens
    /// of `me`, which gets its full lease at once.
    fn advance(&mut self, me: Option<HolderId>) -> Result<Option<TokenBlock>, Unknown> {
        let mut mine = None;
        while self.state.mode() != Some(Mode::Exclusive)
            && let Some(waiter) = self.state.queue.front()
        {
            let is_me = me == Some(waiter.holder.id);
            let is_alive = is_me || self.is_alive(waiter);
            if is_alive && !self.state.fits(waiter.mode) {
                break;
            }
            let Some(waiter) = self.state.queue.pop_front().filter(|_| is_alive) else { continue };
            let (holder, tokens) = (waiter.holder.id, self.draw(None, waiter.block)?);
            if is_me {
                self.grant(waiter.holder, waiter.mode, waiter.ttl, tokens);
                mine = Some(tokens);
                continue;
            }
            let claim_ttl = KeyTable::CLAIM_TTL.min(waiter.ttl);
            self.grant(waiter.holder, waiter.mode, claim_ttl, tokens);
            self.events.push(Event::Handed { key: self.key.clone(), holder, tokens, claim_ttl });
        }
        Ok(mine)
    }

    /// The tokens after the last one, at the proposal of a quorum or the time of the backend.
    fn draw(&mut self, proposal: Option<u64>, wanted: NonZeroU32) -> Result<TokenBlock, Unknown> {
        let (last, wall) = (self.state.fence, self.at.wall_micros);
        let tokens = match proposal {
            Some(proposal) => next_proposed_block(last, proposal, Some(wall), wanted),
            None => next_block(last, wall, wanted),
        };
        let tokens = tokens.map_err(|invalid| Unknown::new(self.backend, Fault::Other, invalid.to_string()))?;
        self.state.fence = tokens.last().get();
        Ok(tokens)
    }

    fn grant(&mut self, holder: Holder, mode: Mode, ttl: Duration, tokens: TokenBlock) {
        let (fence, since, until) = (tokens.last(), self.at.now, self.end_of(ttl));
        self.state.holds.push(Hold { holder, mode, fence, since, until, ttl });
    }

    /// The lease lasts at least this long from now on. Returns the token of the hold.
    fn extend(&mut self, holder: &HolderId, ttl: Duration) -> Option<FencingToken> {
        let until = self.end_of(ttl);
        let held = self.state.hold_of(holder)?;
        (held.until, held.ttl) = (held.until.max(until), ttl);
        Some(held.fence)
    }

    fn end_of(&self, ttl: Duration) -> Moment {
        if self.leases { self.at.now + ttl } else { Moment::NEVER }
    }

    fn is_alive(&self, waiter: &Waiter) -> bool {
        !self.leases || self.at.now.since(waiter.seen) < KeyTable::WAITER_LIFE
    }
}

impl KeyState {
    /// A free key whose tokens come after this one.
    pub(super) fn after(fence: u64) -> Self {
        Self { fence, ..Self::default() }
    }

    /// Whether nothing is held, waited for or stored.
    pub(super) fn is_free(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty() && self.completion.is_none()
    }

    /// The mode of the holders; `None` if the key is free. The weight is that of one of them.
    fn mode(&self) -> Option<Mode> {
        self.holds.first().map(|held| held.mode)
    }

    /// Whether a claim in this mode fits together with the holders: the only difference between the modes.
    fn fits(&self, mode: Mode) -> bool {
        let room = mode.limit().map_or(u64::MAX, u64::from);
        self.mode().is_none_or(|held| held.same_class(mode) && self.used() + u64::from(mode.weight()) <= room)
    }

    /// The permits in use.
    fn used(&self) -> u64 {
        self.holds.iter().map(|held| u64::from(held.mode.weight())).sum()
    }

    fn hold_of(&mut self, holder: &HolderId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|held| held.holder.id == *holder)
    }

    /// Ends a hold. Says whether there was one.
    fn end(&mut self, holder: &HolderId) -> bool {
        let index = self.holds.iter().position(|held| held.holder.id == *holder);
        index.map(|index| self.holds.remove(index)).is_some()
    }

    fn waiters(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// The holders, for an answer; `None` if the key is free.
    fn holders(&self) -> Option<Holders> {
        Holders::listed(self.holds.iter().map(|held| Occupant::Holder(held.holder.clone())))
    }

    fn occupied(&self, now: Moment) -> Option<Occupied> {
        let ends = self.holds.iter().map(|held| held.expiry(now));
        let (expiry, since) = (ends.fold(Expiry::Never, Expiry::earlier), self.holds.first()?.since);
        Some(Occupied::new(self.holders()?, expiry).with_held_for(Some(now.since(since))))
    }

    /// The holds that are not over, all of them.
    pub(super) fn holding(&self, key: &Key, now: Moment) -> Option<Holding> {
        let mut holds = self.holds.iter().filter(|held| now < held.until).map(|held| held.info(now));
        let first = Holding::new(key.clone(), holds.next()?);
        let named = self.queue.iter().take(Holding::NAMED).map(|waiter| waiter.info(now)).collect();
        Some(holds.fold(first, Holding::with_holder).with_waiters(self.waiters()).with_queue(Some(named)))
    }
}

impl Hold {
    fn expiry(&self, now: Moment) -> Expiry {
        if self.until == Moment::NEVER { Expiry::Never } else { Expiry::In(self.until.since(now)) }
    }

    fn info(&self, now: Moment) -> HolderInfo {
        HolderInfo::new(Occupant::Holder(self.holder.clone()), self.expiry(now))
            .with_mode(self.mode)
            .with_fence(Some(self.fence))
            .with_held_for(Some(now.since(self.since)))
            .with_alive(Some(match self.expiry(now) {
                Expiry::In(left) => Liveness::of_lease(self.ttl.saturating_sub(left), self.ttl),
                Expiry::Never => Liveness::Process,
            }))
    }
}

impl Waiter {
    fn info(&self, now: Moment) -> WaiterInfo {
        WaiterInfo::new(self.holder.clone(), self.mode, Some(now.since(self.arrived)))
    }

    /// The mode of its next claim: its semaphore may have been resized, although its client still names the old limit.
    fn mode_of(&self, claimed: Mode) -> Mode {
        let limit = self.mode.limit().filter(|limit| claimed.weight() <= *limit);
        limit.map_or(claimed, |limit| claimed.resized(limit))
    }
}
