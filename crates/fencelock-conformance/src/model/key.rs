use super::answer::{Acquire, Evict, Inspect, Occupied, Raise, Refused, Release, Renew};
use super::line::{Channel, Entry, HandOff, Heard, Line, Name, Waiter, Waiters};
use super::marker::Gate;
use super::server::{CLAMP_US, FENCE_MAX, FENCE_TTL_MS, LINE_TTL_MS, Server};
use super::value::Value;
use std::sync::Arc;

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

/// What a claim wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// The lock, now or not at all.
    Try,
    /// The lock, or a place in line.
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

    fn value(&self) -> Value {
        Value::Ours { holder: self.holder, owner: self.owner.clone() }
    }
}

/// Which tokens a grant asks for.
struct Tokens {
    client_us: u64,
    proposed: bool,
    wanted: u64,
}

/// Whether a script has begun to write. A server with full memory refuses what takes more, but lets a script go on
/// that has begun, so that no step is done by half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrote {
    Nothing,
    Something,
}

/// Whether an advance came upon the one who asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Mine,
    NotMine,
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
            return Ok(Acquire::Granted { fence, count: 1 });
        }
        if self.lock.is_none() {
            let me = Name::Holder(claim.holder);
            let turn = self.advance(server, Some(&me), claim.proposal, claim.hand_off_ms, &mut wrote, publish)?;
            if self.lock.is_none() {
                if turn == Turn::NotMine && claim.intent == Intent::Poll {
                    return Ok(Acquire::Gone);
                }
                let (fence, count) = self.draw(server, &claim.tokens(claim.wanted), &mut wrote)?;
                self.lock = Some(Lock { value: claim.value(), expires_ms: Some(server.now_ms() + claim.ttl_ms) });
                return Ok(Acquire::Granted { fence, count });
            }
        }
        if claim.intent == Intent::Try {
            return Ok(Acquire::Busy(self.occupied(server)));
        }
        self.wait(server, claim, wrote)
    }

    /// A place at the end of the line for who has none, and a sign of life. A poll gives no place.
    fn wait(&mut self, server: &Server, claim: &Claim, mut wrote: Wrote) -> Result<Acquire, Refused> {
        let me = Name::Holder(claim.holder);
        let ahead = match self.line.rank(&me) {
            Some(ahead) => ahead,
            None if claim.intent == Intent::Poll => return Ok(Acquire::Gone),
            None => {
                take_memory(server, &mut wrote)?;
                self.line.append(me.clone())
            }
        };
        take_memory(server, &mut wrote)?;
        let alive_until_ms = server.clock_us(claim.proposal) / 1000 + claim.life_ms;
        let (ttl_ms, wanted, channel) = (claim.ttl_ms, claim.wanted, claim.channel);
        let waiter = Waiter { alive_until_ms, ttl_ms, wanted, channel, value: claim.value() };
        self.waiters.entries.insert(me, Entry::Waiter(waiter));
        // It is enough that the first keeps the line alive: it polls as long as there is a line.
        if ahead == 0 {
            let end = server.now_ms() + LINE_TTL_MS;
            (self.line.expires_ms, self.waiters.expires_ms) = (Some(end), Some(end));
        }
        Ok(Acquire::Queued { ahead: ahead as u64, occupied: self.occupied(server) })
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

    /// `renew.lua`: a held lock has at least this time from now. Never less than before, and nothing is created.
    pub fn renew(&mut self, server: &Server, holder: u128, ttl_ms: u64) -> Renew {
        self.expire(server);
        let waiters = self.line.members.len() as u64;
        if let Some(lock) = self.lock_of(holder) {
            lock.prolong(server, ttl_ms);
            return Renew::Renewed { waiters };
        }
        self.lock.as_ref().map_or(Renew::Absent, |lock| Renew::Taken(lock.value.clone()))
    }

    /// `release.lua`: gives up the lock, or the place in line for it. A lock that is free then goes to the line, if the
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
        let answer = if self.lock_of(holder).is_some() {
            self.lock = None;
            Release::Released
        } else {
            let me = Name::Holder(holder);
            if let Some(rank) = self.line.rank(&me) {
                self.line.remove(rank);
                self.waiters.remove(&me);
            }
            if let Some(lock) = &self.lock {
                return Ok(Release::Taken(lock.value.clone()));
            }
            Release::Absent
        };
        if gate.refusal()?.is_none() {
            self.advance(server, None, proposal, hand_off_ms, &mut Wrote::Something, publish)?;
        }
        Ok(answer)
    }

    /// `evict.lua`: ends the hold that was seen, whoever has it, if it is still that one.
    pub fn evict(
        &mut self,
        server: &Server,
        seen: &Value,
        proposal: u64,
        hand_off_ms: u64,
        gate: &Gate,
        publish: &mut impl FnMut(HandOff) -> Heard,
    ) -> Result<Evict, Refused> {
        self.expire(server);
        if self.lock.as_ref().is_none_or(|lock| lock.value != *seen) {
            return Ok(Evict::AnotherByNow);
        }
        self.lock = None;
        if gate.refusal()?.is_none() {
            self.advance(server, None, proposal, hand_off_ms, &mut Wrote::Something, publish)?;
        }
        Ok(Evict::Evicted)
    }

    /// `inspect.lua`: who has the lock; `None` if it is free.
    pub fn inspect(&mut self, server: &Server) -> Option<Inspect> {
        self.expire(server);
        let lock = self.lock.as_ref()?;
        let fence = self.fence.map(|fence| fence.token);
        let waiters = self.line.members.len() as u64;
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
    }

    fn lock_of(&mut self, holder: u128) -> Option<&mut Lock> {
        self.lock.as_mut().filter(|lock| lock.value.holder() == Some(holder))
    }

    fn occupied(&self, server: &Server) -> Occupied {
        let lock = self.lock.as_ref().unwrap_or_else(|| unreachable!("only of a lock that is not free"));
        let last_fence = self.fence.map_or(0, |fence| fence.token);
        Occupied { last_fence, ttl_ms: lock.ttl_ms(server), by: lock.value.clone() }
    }

    /// The next fence, and how many tokens end with it.
    fn draw(&mut self, server: &Server, tokens: &Tokens, wrote: &mut Wrote) -> Result<(u64, u64), Refused> {
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

    /// A free lock goes to the first waiter that is alive and whose process listens, under a short lease until it
    /// confirms; those passed over are out of the line. It ends before `me`, who is out of the line too.
    fn advance(
        &mut self,
        server: &Server,
        me: Option<&Name>,
        proposal: u64,
        hand_off_ms: u64,
        wrote: &mut Wrote,
        publish: &mut impl FnMut(HandOff) -> Heard,
    ) -> Result<Turn, Refused> {
        while let Some(name) = self.line.pop() {
            *wrote = Wrote::Something;
            let entry = self.waiters.remove(&name);
            if me == Some(&name) {
                return Ok(Turn::Mine);
            }
            let Some(Entry::Waiter(waiter)) = entry else { continue };
            if waiter.alive_until_ms * 1000 <= server.clock_us(proposal) {
                continue;
            }
            // Before the message, which carries it. If nobody hears that, a fence is skipped, which does no harm.
            let (fence, count) =
                self.draw(server, &Tokens { client_us: proposal, proposed: false, wanted: waiter.wanted }, wrote)?;
            let lease_ms = waiter.ttl_ms.min(hand_off_ms);
            let told = waiter.channel.map(|channel| publish(HandOff { channel, to: name, fence, count, lease_ms }));
            if told != Some(Heard::ByNone) {
                self.lock = Some(Lock { value: waiter.value, expires_ms: Some(server.now_ms() + lease_ms) });
                return Ok(Turn::NotMine);
            }
        }
        Ok(Turn::NotMine)
    }
}

impl Tokens {
    fn after(&self, previous: u64, server: &Server) -> (u64, u64) {
        if self.proposed { self.proposed_after(previous, server) } else { self.own_after(previous, server) }
    }

    /// They end with the server's time, or one above the last, and reach down to the last; one where none is remembered.
    fn own_after(&self, previous: u64, server: &Server) -> (u64, u64) {
        let token = server.clock_us(self.client_us).max(previous + 1);
        let room = if previous == 0 { 1 } else { token - previous };
        (token, self.wanted.min(room))
    }

    /// Above the last one by as many as are wanted, and otherwise the proposal, as far as the server's clock bears it out.
    /// Tokens that would lie more than a second off that clock are not given, but one is always.
    fn proposed_after(&self, previous: u64, server: &Server) -> (u64, u64) {
        let now = server.clock_us(self.client_us);
        let clamped = if server.time_refused {
            self.client_us
        } else {
            self.client_us.clamp(server.now_us.saturating_sub(CLAMP_US), server.now_us + CLAMP_US)
        };
        let ceiling = now.saturating_add(CLAMP_US).min(FENCE_MAX);
        let count = self.wanted.min(ceiling.saturating_sub(previous)).max(1);
        let token = clamped.max(previous + count);
        (token, count.min(token - now.saturating_sub(CLAMP_US) + 1))
    }
}

/// A step that needs more memory.
fn take_memory(server: &Server, wrote: &mut Wrote) -> Result<(), Refused> {
    if server.full && *wrote == Wrote::Nothing {
        return Err(Refused::Full);
    }
    *wrote = Wrote::Something;
    Ok(())
}
