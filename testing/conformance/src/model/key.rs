use super::answer::{Acquire, Evict, Inspect, Left, Look, Occupied, Raise, Refused, Release, Renew};
use super::marker::Gate;
use super::queue::{Channel, HandOff, Heard, Line, Lives, Name, Unread, Waiters};
use super::server::{FENCE_MAX, FENCE_TTL_MS, Server};
use super::tokens::Tokens;
use super::value::Value;
use std::sync::Arc;

/// A lease that is so much longer than anybody asked for is cut at its renewal.
const SLACK_MS: u64 = 1000;

/// What stands under the user's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Whose it is.
    pub value: Value,
    /// `None`: it has no end.
    pub expires_ms: Option<u64>,
}

impl Lock {
    /// The end moves only away. A lock without an end gets one: its holder would take it along into the grave.
    fn prolong(&mut self, server: &Server, ttl_ms: u64) -> Wrote {
        let end = server.now_ms() + ttl_ms;
        if self.expires_ms.is_some_and(|before| before >= end) {
            return Wrote::Nothing;
        }
        self.expires_ms = Some(end);
        Wrote::Something
    }

    /// The end moves away; or back, if it is more than a second further than `ttl_ms` and what its holder was told.
    fn renew(&mut self, server: &Server, ttl_ms: u64, told_ms: u64) {
        let longest = ttl_ms.max(told_ms);
        let left = self.ttl_ms(server).map_or(0, |left| if left > longest + SLACK_MS { longest } else { left });
        self.expires_ms = Some(server.now_ms() + left.max(ttl_ms));
    }

    fn ttl_ms(&self, server: &Server) -> Option<u64> {
        self.expires_ms.map(|end| end - server.now_ms())
    }
}

/// The greatest fencing token given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The token.
    pub token: u64,
    /// When it is forgotten.
    pub expires_ms: u64,
}

/// What an eviction takes the hold for that it is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// One of ours, with a fence beside it.
    Ours,
    /// Another program's, with an end.
    Foreign,
    /// Another program's, without an end.
    Endless,
}

/// What a claim wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// The lock, now or not at all.
    Try,
    /// The lock, or a position in the queue.
    Enqueue,
    /// News of either.
    Poll,
}

/// The arguments of `acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// What it wants.
    pub intent: Intent,
    /// Who asks.
    pub holder: u128,
    /// What is written behind the holder, for people.
    pub owner: Option<Arc<str>>,
    /// The lease.
    pub ttl_ms: u64,
    /// The client's time, as a fencing token.
    pub proposal: u64,
    /// Whether that is the token that a quorum proposes to its nodes. Else it only stands in for a time that is refused.
    pub proposed: bool,
    /// Life of a waiter between two polls.
    pub life_ms: u64,
    /// Lease of a hand-off to others, until they confirm.
    pub hand_off_ms: u64,
    /// What wakes this one.
    pub channel: Option<Channel>,
    /// How many fencing tokens it wants, at least one.
    pub wanted: u64,
}

impl Claim {
    /// Takes the lock of one node of a quorum now or not at all. Times of waiters are those of production.
    pub const fn try_for(holder: u128, ttl_ms: u64, proposal: u64) -> Self {
        let (life_ms, hand_off_ms) = (3000, 3000);
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
        }
    }

    const fn tokens(&self, wanted: u64) -> Tokens {
        Tokens { client_us: self.proposal, proposed: self.proposed, wanted }
    }

    pub(super) fn value(&self) -> Value {
        Value::Ours { holder: self.holder, owner: self.owner.clone() }
    }
}

/// Whether a script has begun to write. A server with full memory refuses what takes more, but lets a script go on
/// that has begun, so that no step is done by half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    Nothing,
    Something,
}

/// Whether an advance came upon the one who asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Mine,
    Given,
    Nobody,
    More,
    Unreadable,
}

impl From<(Turn, Option<Unread>)> for Left {
    fn from((turn, unread): (Turn, Option<Unread>)) -> Self {
        Self { more: turn == Turn::More, unread }
    }
}

/// One key, with all that belongs to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct KeyModel {
    /// The lock; `None` if it is free.
    pub lock: Option<Lock>,
    /// The fence.
    pub fence: Option<Fence>,
    /// The line.
    pub line: Line,
    /// What is known of those in line.
    pub waiters: Waiters,
    /// Until when they count.
    pub lives: Lives,
}

/// The scripts.
impl KeyModel {
    /// `acquire.lua`: takes the lock, or stands in line for it, or asks after either.
    ///
    /// A claim that arrives twice finds itself the holder, and changes nothing: only a poll gives full time. A free lock
    /// is first offered to the line; the claim gets it if nobody alive stands before it there.
    pub fn acquire(
        &mut self,
        server: &Server,
        claim: &Claim,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Heard,
    ) -> Result<Acquire, Refused> {
        self.expire(server);
        if let Some(refusal) = gate.refusal()? {
            return Ok(Acquire::Refused(refusal.clone()));
        }
        let mut wrote = Wrote::Nothing;
        if let Some(lock) = self.lock_of(claim.holder) {
            if claim.intent != Intent::Poll {
                return Ok(Acquire::Yours);
            }
            wrote = lock.prolong(server, claim.ttl_ms);
            let fence = match &self.fence {
                Some(fence) => fence.token,
                None => self.draw(server, &claim.tokens(1), &mut wrote)?.0,
            };
            return Ok(Acquire::Granted { fence, count: 1, unread: None });
        }
        let mut found = None;
        if self.lock.is_none() {
            let me = Name::Holder(claim.holder);
            let (turn, unread) =
                self.advance(server, Some(&me), claim.proposal, claim.hand_off_ms, &mut wrote, publish)?;
            if turn != Turn::Given {
                match turn {
                    Turn::More => return Ok(Acquire::More(unread)),
                    Turn::Unreadable => return Ok(Acquire::Unreadable(unread)),
                    _ => {}
                }
                if turn != Turn::Mine && claim.intent == Intent::Poll {
                    return Ok(Acquire::Gone);
                }
                let (fence, count) = self.draw(server, &claim.tokens(claim.wanted), &mut wrote)?;
                self.lock = Some(Lock { value: claim.value(), expires_ms: Some(server.now_ms() + claim.ttl_ms) });
                return Ok(Acquire::Granted { fence, count, unread });
            }
            found = unread;
        }
        if claim.intent == Intent::Try {
            return Ok(Acquire::Busy(Occupied { unread: found, ..self.occupied(server) }));
        }
        self.wait(server, claim, wrote, found)
    }

    /// `raise.lua`: the fence of a held lock becomes this one, unless it is beyond.
    pub fn raise(&mut self, server: &Server, holder: u128, to: u64, gate: &Gate) -> Result<Raise, Refused> {
        self.expire(server);
        let fence = self.fence.map_or(0, |fence| fence.token);
        if gate.refusal()?.is_some() || self.lock_of(holder).is_none() || fence > to {
            return Ok(Raise::Refused);
        }
        take_memory(server, &mut Wrote::Nothing)?;
        self.set_fence(server, to);
        Ok(Raise::Acked)
    }

    /// `renew.lua`: a held lock has at least this time from now. Never less than what its holder was told; it creates nothing.
    pub fn renew(&mut self, server: &Server, holder: u128, ttl_ms: u64, told_ms: u64) -> Renew {
        self.expire(server);
        let waiters = self.living(server);
        if let Some(lock) = self.lock_of(holder) {
            lock.renew(server, ttl_ms, told_ms);
            if let Some(fence) = &mut self.fence {
                fence.expires_ms = server.now_ms() + FENCE_TTL_MS;
            }
            return Renew::Renewed { waiters };
        }
        self.lock.as_ref().map_or(Renew::Absent, |lock| Renew::Taken(lock.value.clone()))
    }

    /// `release.lua`: gives up the lock, or the position in the queue. A lock that is free then goes to the line, if the
    /// server may grant.
    pub fn release(
        &mut self,
        server: &Server,
        holder: u128,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Heard,
    ) -> Result<Release, Refused> {
        self.expire(server);
        let was_held = self.lock_of(holder).is_some();
        if was_held {
            self.lock = None;
        } else {
            let me = Name::Holder(holder);
            if self.line.rank(&me).is_some() {
                self.forget(&me);
            }
            if let Some(lock) = &self.lock {
                return Ok(Release::Taken(lock.value.clone()));
            }
        }
        let mut left = Left::NOBODY;
        if gate.refusal()?.is_none() {
            left = self.advance(server, None, proposal, hand_off_ms, &mut Wrote::Something, publish)?.into();
        }
        Ok(if was_held { Release::Released(left) } else { Release::Absent(left) })
    }

    /// `evict.lua`: ends the hold that was seen, whoever has it, if it is still that one and of that kind.
    pub fn evict(
        &mut self,
        server: &Server,
        (seen, kind): (&Value, Seen),
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Heard,
    ) -> Result<Evict, Refused> {
        self.expire(server);
        let Some(lock) = self.lock.as_ref().filter(|lock| lock.value == *seen) else { return Ok(Evict::AnotherByNow) };
        let is_string = seen.kind().is_empty();
        let is_so = match kind {
            Seen::Ours => self.fence.is_some(),
            Seen::Foreign => lock.expires_ms.is_some(),
            Seen::Endless => lock.expires_ms.is_none(),
        };
        if !is_string || !is_so || seen.is_later() {
            return Ok(Evict::AnotherByNow);
        }
        self.lock = None;
        let mut left = Left::NOBODY;
        if gate.refusal()?.is_none() {
            left = self.advance(server, None, proposal, hand_off_ms, &mut Wrote::Something, publish)?.into();
        }
        Ok(Evict::Evicted(left))
    }

    /// `inspect.lua` where a quarantine is asked for: a server that may have forgotten calls nothing free.
    pub fn look(&mut self, server: &Server, gate: &Gate) -> Result<Look, Refused> {
        if let Some(seen) = self.inspect(server) {
            return Ok(Look::Held(seen));
        }
        Ok(gate.refusal()?.map_or(Look::Free, |refusal| Look::Refused(refusal.clone())))
    }

    /// `inspect.lua`: who has the lock; `None` if it is free.
    pub fn inspect(&mut self, server: &Server) -> Option<Inspect> {
        self.expire(server);
        let lock = self.lock.as_ref()?;
        let fence = self.fence.map(|fence| fence.token);
        let waiters = self.living(server);
        Some(Inspect { by: lock.value.clone(), ttl_ms: lock.ttl_ms(server), fence, waiters })
    }
}

/// What they share.
impl KeyModel {
    /// What is over is gone for good, also if the clock is set back later.
    pub fn expire(&mut self, server: &Server) {
        self.lock.take_if(|lock| server.is_over(lock.expires_ms));
        self.fence.take_if(|fence| server.is_over(Some(fence.expires_ms)));
        if server.is_over(self.line.expires_ms) {
            self.line = Line::default();
        }
        if server.is_over(self.waiters.expires_ms) {
            self.waiters = Waiters::default();
        }
        if server.is_over(self.lives.expires_ms) {
            self.lives = Lives::default();
        }
    }

    fn lock_of(&mut self, holder: u128) -> Option<&mut Lock> {
        self.lock.as_mut().filter(|lock| lock.value.holder() == Some(holder))
    }

    pub(super) fn occupied(&self, server: &Server) -> Occupied {
        let lock = self.lock.as_ref().unwrap_or_else(|| unreachable!("only of a lock that is not free"));
        let last_fence = self.fence.map_or(0, |fence| fence.token);
        Occupied { last_fence, ttl_ms: lock.ttl_ms(server), by: lock.value.clone(), unread: None }
    }

    /// The next fence, and how many tokens end with it.
    pub(super) fn draw(&mut self, server: &Server, tokens: &Tokens, wrote: &mut Wrote) -> Result<(u64, u64), Refused> {
        let previous = self.fence.map_or(0, |fence| fence.token);
        let (token, count) = tokens.after(previous, server);
        if token > FENCE_MAX {
            return Err(Refused::NoMoreFences);
        }
        take_memory(server, wrote)?;
        self.set_fence(server, token);
        Ok((token, count))
    }

    fn set_fence(&mut self, server: &Server, token: u64) {
        self.fence = Some(Fence { token, expires_ms: server.now_ms() + FENCE_TTL_MS });
    }
}

/// A step that needs more memory.
pub(super) fn take_memory(server: &Server, wrote: &mut Wrote) -> Result<(), Refused> {
    if server.full && *wrote == Wrote::Nothing {
        return Err(Refused::Full);
    }
    *wrote = Wrote::Something;
    Ok(())
}
