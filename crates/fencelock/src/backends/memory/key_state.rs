use super::holder_set::{HolderSet, MemoryHold};
use fencelock_core::{
    Acquire, Claim, Downgrade, Event, Eviction, Fault, FencingToken, Holder, HolderId, Holding, Intent, Invalid, Key,
    Mode, Moment, Raise, Release, Renew, Renewal, Resize, Resized, TokenBlock, Unknown, next_block,
    next_proposed_block, raise_fence,
};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

/// The lease of a hand-off until its waiter confirms it, and how long a waiter stays alive without a poll, as on Redis.
const CLAIM_TTL: Duration = Duration::from_secs(3);
const WAITER_LIFE: Duration = Duration::from_secs(3);

/// The state of a key. A free key keeps its state only while tasks wait, and with leases its fence.
///
/// The first waiter that does not fit stops the queue, in every mode: so no waiter is overtaken, and no writer and no large weight
/// starves. Every call that can free the key or permits ends with [`KeyState::advance`].
#[derive(Debug, Default)]
pub(super) struct KeyState {
    fence: u64,
    holders: HolderSet,
    queue: VecDeque<QueueEntry>,
    /// The holder whose end has a subscriber.
    watched: Option<HolderId>,
    /// The backend has reported that no client waits, and will announce the next waiter.
    announces: bool,
    /// The key is among those that are removed when their last token is no longer young.
    pub(super) is_listed: bool,
}

#[derive(Debug)]
struct QueueEntry {
    holder: Holder,
    mode: Mode,
    ttl: Duration,
    block: NonZeroU32,
    seen: Moment,
}

impl QueueEntry {
    /// The mode of its next claim: its semaphore may have been resized, although its client still names the old limit.
    fn mode_of(&self, claimed: Mode) -> Mode {
        let limit = self.mode.limit().filter(|limit| claimed.weight() <= *limit);
        limit.map_or(claimed, |limit| claimed.resized(limit))
    }
}

/// The inputs of a step.
pub(super) struct StepContext<'a> {
    pub(super) backend: &'a str,
    pub(super) key: &'a Key,
    pub(super) now: Moment,
    pub(super) wall: u64,
    pub(super) leases: bool,
    pub(super) events: &'a mut Vec<Event>,
}

impl StepContext<'_> {
    fn end(&self, ttl: Duration) -> Moment {
        if self.leases { self.now + ttl } else { Moment::NEVER }
    }

    fn is_alive(&self, waiter: &QueueEntry) -> bool {
        !self.leases || self.now.since(waiter.seen) < WAITER_LIFE
    }

    fn refused(&self, invalid: &Invalid) -> Unknown {
        Unknown::new(self.backend, Fault::Other, invalid.to_string())
    }
}

impl KeyState {
    /// A free key whose tokens come after this one.
    pub(super) fn after(fence: u64) -> Self {
        Self { fence, ..Self::default() }
    }

    /// The last token.
    pub(super) const fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether nothing is held or waited for.
    pub(super) fn is_free(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Ends the holds that are over.
    pub(super) fn expire(&mut self, now: Moment) {
        self.holders.expire(now);
    }

    /// `proposal` is that of a quorum.
    pub(super) fn claim(
        &mut self,
        claim: &Claim,
        proposal: Option<u64>,
        mut step: StepContext<'_>,
    ) -> Result<Acquire, Unknown> {
        let (me, mut mode) = (claim.holder.id, claim.mode);
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.holder.id == me) {
            mode = waiter.mode_of(mode);
            (waiter.seen, waiter.block, waiter.mode) = (step.now, claim.block, mode);
        }
        if let Some(present) = self.conflict(me, mode, &step) {
            self.queue.retain(|waiter| waiter.holder.id != me);
            self.advance(None, &mut step)?;
            return Err(claim.conflicting(step.backend, present));
        }
        let mut granted = self.advance(Some(me), &mut step)?;
        let is_free = self.queue.is_empty() && self.holders.fits(mode) && self.holders.get(&me).is_none();
        if is_free && claim.intent != Intent::Poll {
            let tokens = next_tokens(self.fence, proposal, claim.block, &step);
            granted = Some(self.grant(claim.holder.clone(), mode, claim.ttl.get(), tokens, &step)?);
        }
        if let Some(held) = self.holders.get_mut(&me) {
            held.extend(step.end(claim.ttl.get()));
            // The client may have used some tokens before it repeats the claim, but none after the last.
            return Ok(Acquire::Granted { tokens: granted.unwrap_or(held.fence.into()) });
        }
        Ok(self.wait(claim, &mut step))
    }

    /// The mode in which the key is held or waited for by others and that never fits the mode of this claim.
    fn conflict(&self, me: HolderId, mode: Mode, step: &StepContext<'_>) -> Option<Mode> {
        if mode == Mode::Exclusive || self.holders.get(&me).is_some() {
            return None;
        }
        let others = self.queue.iter().filter(|waiter| waiter.holder.id != me && step.is_alive(waiter));
        let mut present = self.holders.mode().into_iter().chain(others.map(|waiter| waiter.mode));
        present.find(|present| present.conflicts(mode))
    }

    /// The answer to a claim that does not fit.
    fn wait(&mut self, claim: &Claim, step: &mut StepContext<'_>) -> Acquire {
        let position = self.queue.iter().position(|waiter| waiter.holder.id == claim.holder.id);
        let position = match (position, claim.intent) {
            (None, Intent::Poll) => return Acquire::Gone,
            (_, Intent::Try) => return self.holders.occupied(step.now).map_or(Acquire::Gone, Acquire::Busy),
            (Some(position), _) => position,
            (None, Intent::Enqueue) => {
                let (holder, mode, ttl) = (claim.holder.clone(), claim.mode, claim.ttl.get());
                self.queue.push_back(QueueEntry { holder, mode, ttl, block: claim.block, seen: step.now });
                if std::mem::take(&mut self.announces) {
                    step.events.push(Event::Queued { key: step.key.clone() });
                }
                self.queue.len() - 1
            }
        };
        let ahead = u32::try_from(position).unwrap_or(u32::MAX);
        self.holders.occupied(step.now).map_or(Acquire::Gone, |occupied| Acquire::Queued {
            ahead,
            last_fence: self.fence,
            server_micros: None,
            occupied,
        })
    }

    fn grant(
        &mut self,
        holder: Holder,
        mode: Mode,
        ttl: Duration,
        tokens: Result<TokenBlock, Invalid>,
        step: &StepContext<'_>,
    ) -> Result<TokenBlock, Unknown> {
        let tokens = tokens.map_err(|invalid| step.refused(&invalid))?;
        self.fence = tokens.last().get();
        self.holders.add(MemoryHold { holder, mode, fence: tokens.last(), since: step.now, until: step.end(ttl) });
        Ok(tokens)
    }

    /// Grants the key to the live waiters at the head of the queue that fit, and sends them their tokens. Returns the tokens
    /// of `me`, which gets its full lease at once.
    fn advance(&mut self, me: Option<HolderId>, step: &mut StepContext<'_>) -> Result<Option<TokenBlock>, Unknown> {
        let mut mine = None;
        while self.holders.is_open()
            && let Some(waiter) = self.queue.front()
        {
            let is_me = me == Some(waiter.holder.id);
            let is_alive = is_me || step.is_alive(waiter);
            if is_alive && !self.holders.fits(waiter.mode) {
                break;
            }
            let Some(waiter) = self.queue.pop_front().filter(|_| is_alive) else { continue };
            let tokens = next_block(self.fence, step.wall, waiter.block);
            if is_me {
                mine = Some(self.grant(waiter.holder, waiter.mode, waiter.ttl, tokens, step)?);
                continue;
            }
            let (holder, claim_ttl) = (waiter.holder.id, CLAIM_TTL.min(waiter.ttl));
            let tokens = self.grant(waiter.holder, waiter.mode, claim_ttl, tokens, step)?;
            step.events.push(Event::Handed { key: step.key.clone(), holder, tokens, claim_ttl });
        }
        Ok(mine)
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, step: &StepContext<'_>) -> Renew {
        let waiters = self.waiters();
        if let Some(held) = self.holders.get_mut(&renewal.holder) {
            held.extend(step.end(renewal.ttl.get()));
            self.announces |= waiters == 0;
            return Renew::Renewed { waiters };
        }
        self.holders.holders().map_or(Renew::Absent, Renew::TakenBy)
    }

    pub(super) fn release(&mut self, holder: &HolderId, mut step: StepContext<'_>) -> Result<Release, Unknown> {
        self.queue.retain(|waiter| waiter.holder.id != *holder);
        let answer = if self.holders.remove(holder) {
            Release::Released
        } else {
            self.holders.holders().map_or(Release::Absent, Release::TakenBy)
        };
        self.advance(None, &mut step)?;
        Ok(answer)
    }

    /// Turns an exclusive hold into a shared one. A repeated request finds it shared and returns the same token.
    /// `proposal` is that of a quorum.
    pub(super) fn downgrade(
        &mut self,
        renewal: &Renewal,
        proposal: Option<u64>,
        mut step: StepContext<'_>,
    ) -> Result<Downgrade, Unknown> {
        let Some(held) = self.holders.get_mut(&renewal.holder) else {
            return Ok(self.holders.holders().map_or(Downgrade::Absent, Downgrade::TakenBy));
        };
        if matches!(held.mode, Mode::Permits { .. }) {
            let advice = format!("key {}: only an exclusive lock can be downgraded", step.key);
            return Err(Unknown::new(step.backend, Fault::ModeConflict(held.mode), advice));
        }
        if held.mode == Mode::Exclusive {
            let tokens = next_tokens(self.fence, proposal, NonZeroU32::MIN, &step);
            let token = tokens.map_err(|invalid| step.refused(&invalid))?.last();
            self.fence = token.get();
            (held.mode, held.fence) = (Mode::Shared, token);
        }
        held.extend(step.end(renewal.ttl.get()));
        let token = held.fence;
        self.advance(None, &mut step)?;
        Ok(Downgrade::Downgraded { token })
    }

    /// Changes the limit of the semaphore.
    pub(super) fn resize(&mut self, limit: u32, mut step: StepContext<'_>) -> Result<Resize, Unknown> {
        let (Some(mode), Some(holders)) = (self.holders.mode(), self.holders.holders()) else {
            return Ok(Resize::Free);
        };
        let Some(before) = mode.limit() else { return Ok(Resize::OtherMode { mode, holders }) };
        self.holders.resize(limit);
        self.queue.retain_mut(|waiter| {
            let mode = waiter.mode.taken_over(before, limit);
            waiter.mode = mode.unwrap_or(waiter.mode);
            mode.is_some()
        });
        self.advance(None, &mut step)?;
        let (used, holders) = self.holders.in_use();
        Ok(Resize::Resized(Resized::new(before, limit, used, holders)))
    }

    /// Ends the holds that `seen` lists and that have not ended since.
    pub(super) fn evict(&mut self, seen: &Holding, mut step: StepContext<'_>) -> Result<Eviction, Unknown> {
        let listed = seen.holders.iter().filter_map(fencelock_core::HolderInfo::holder_id);
        let ended = listed.filter(|holder| self.holders.remove(holder)).count();
        if ended == 0 {
            return Ok(Eviction::Changed(self.holding(step.key, step.now).map(Box::new)));
        }
        step.events.push(Event::Changed { key: step.key.clone() });
        self.advance(None, &mut step)?;
        Ok(Eviction::Evicted)
    }

    pub(super) fn raise(&mut self, holder: &HolderId, to: FencingToken) -> Raise {
        let Some(held) = self.holders.get_mut(holder) else { return Raise::Refused };
        let Some(fence) = raise_fence(Some(held.fence.get()), self.fence, to) else { return Raise::Refused };
        (self.fence, held.fence) = (fence, to);
        Raise::Acked
    }

    /// Whether this holder has the key alone.
    pub(super) fn is_exclusive_to(&self, holder: &HolderId) -> bool {
        !self.holders.is_open() && self.holders.first().as_ref() == Some(holder)
    }

    pub(super) fn holding(&self, key: &Key, now: Moment) -> Option<Holding> {
        self.holders.holding(key, now).map(|holding| holding.with_waiters(self.waiters()))
    }

    /// The end of the hold that is there now has a subscriber.
    pub(super) fn watch(&mut self, step: &mut StepContext<'_>) {
        self.watched = self.holders.first();
        if self.watched.is_none() {
            step.events.push(Event::Changed { key: step.key.clone() });
        }
    }

    /// Whether the watched hold has ended. After that it is no longer watched.
    pub(super) fn watched_has_ended(&mut self) -> bool {
        let holders = &self.holders;
        self.watched.take_if(|holder| holders.get(holder).is_none()).is_some()
    }

    fn waiters(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}

/// The tokens after `previous`, at the proposal of a quorum or the time of the backend.
fn next_tokens(
    previous: u64,
    proposal: Option<u64>,
    wanted: NonZeroU32,
    step: &StepContext<'_>,
) -> Result<TokenBlock, Invalid> {
    match proposal {
        Some(proposal) => next_proposed_block(previous, proposal, Some(step.wall), wanted),
        None => next_block(previous, step.wall, wanted),
    }
}
