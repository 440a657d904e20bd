use super::answer::{QueueScan, ScriptError};
use super::holds::{HeldEntries, Holds};
use super::queue::{Channel, Unread, WaiterDeadlines, WaiterQueue, Waiters};
use super::server::{FENCE_MAX, FENCE_TTL_MS, Server};
use super::tokens::Tokens;
use super::value::Value;
use fencelock_core::Mode;
use std::sync::Arc;

/// A renewal shortens a lease that is longer than the TTL by more than this.
const SLACK_MS: u64 = 1000;

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
