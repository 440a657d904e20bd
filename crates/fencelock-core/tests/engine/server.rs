//! The server: the model of one key on one Redis node, and the clock that it goes by.

use crate::mutants::Mutant;
use crate::network::{Call, Reply, key};
use fencelock_core::{
    Acquire, Claim, Downgrade, Expiry, FencingToken, Foreign, HandOffBounds, Holder, HolderId, HolderInfo, Holding,
    Intent, KeyTable, Moment, Occupant, Occupied, Owner, Release, Renew, Renewal, TokenBlock,
};
use fencelock_model::{Delivery, Gate, HandOff, KeyModel, Name, Value};
use std::num::NonZeroU32;
use std::time::Duration;

/// The server's clock when the schedule begins.
const EPOCH: u64 = 1_780_000_000_000_000;
/// The claim TTL, and the life of a waiter between two polls, as production asks for them.
const CLAIM_TTL_MS: u64 = KeyTable::CLAIM_TTL.as_secs() * 1000;

#[derive(Debug, Clone, Hash)]
pub(crate) struct Server {
    pub(crate) key: KeyModel,
    queues: bool,
    ppm: u64,
    /// Until when another program relies on the key.
    pub(crate) foreign_until: Option<Moment>,
    /// A holder got the key before another that waited at the server for longer.
    pub(crate) overtaken: bool,
    /// Clients that are notified when the next waiter comes.
    pub(crate) announces_to: Vec<u8>,
    /// Whose holds ended by a release.
    pub(crate) freed: Vec<HolderId>,
}

/// What a request leads to.
pub(crate) struct Done {
    pub(crate) reply: Option<Reply>,
    /// The claim was already the holder. The client library sends a poll.
    pub(crate) again: Option<Call>,
    pub(crate) messages: Vec<HandOff>,
    /// The key was freed without a hand-off.
    pub(crate) changed: bool,
    /// Clients that are notified that another one waits.
    pub(crate) announced_to: Vec<u8>,
}

impl Server {
    pub(crate) fn new(queues: bool, ppm: u64) -> Self {
        // The key was held before, so the first grant may be of several tokens.
        let fence = Some(fencelock_model::Fence { token: EPOCH / 2, expires_ms: u64::MAX / 4 });
        let key = KeyModel { fence, ..KeyModel::default() };
        Self { key, queues, ppm, foreign_until: None, overtaken: false, announces_to: Vec::new(), freed: Vec::new() }
    }

    fn at(&self, now: Moment) -> fencelock_model::Server {
        fencelock_model::Server::at(self.micros(now))
    }

    /// What the server's clock says.
    fn micros(&self, now: Moment) -> u64 {
        EPOCH + now.as_micros() + now.as_micros() * self.ppm / 1_000_000
    }

    /// Whose lock it is, if one holder has it alone.
    pub(crate) fn holder(&mut self, now: Moment) -> Option<HolderId> {
        let server = self.at(now);
        self.key.expire(&server);
        self.key.lock.as_ref()?.value.holder().map(id)
    }

    /// All whose lock it is.
    pub(crate) fn holders(&mut self, now: Moment) -> Vec<HolderId> {
        if self.holds_count(now) == 0 {
            return self.holder(now).into_iter().collect();
        }
        let now_ms = self.micros(now) / 1000;
        let live = self.key.holds.ends_ms.iter().filter(|(_, end_ms)| **end_ms >= now_ms);
        live.map(|(holder, _)| id(*holder)).collect()
    }

    /// How many hold the key together. They count only while its value says so.
    pub(crate) fn holds_count(&mut self, now: Moment) -> usize {
        let server = self.at(now);
        self.key.expire(&server);
        let shared = self.key.lock.as_ref().is_some_and(|lock| matches!(lock.value, Value::Shared { .. }));
        if shared { self.key.holds.ends_ms.len() } else { 0 }
    }

    /// When the lock has ended, if it does so by itself.
    pub(crate) fn lock_ends(&self) -> Option<Moment> {
        let ends_us = self.key.lock.as_ref()?.expires_ms?.saturating_mul(1000);
        let since = u128::from(ends_us - EPOCH) * 1_000_000 / u128::from(1_000_000 + self.ppm);
        // Rounded down, and the lock is there in its last millisecond.
        Some(Moment::from_micros(u64::try_from(since).unwrap() + 1001))
    }

    /// Whether the lock is this holder's, and will be until then by the server's clock.
    pub(crate) fn has_until(&mut self, holder: HolderId, now: Moment, until: Moment) -> bool {
        let server = self.at(now);
        self.key.expire(&server);
        let end_ms = if until == Moment::NEVER { u64::MAX } else { self.micros(until) / 1000 };
        let hold = self.key.holds.ends_ms.get(&number(holder));
        self.key.lock.as_ref().is_some_and(|lock| {
            let alone = lock.value.holder().map(id) == Some(holder);
            let among = matches!(lock.value, Value::Shared { .. }) && hold.is_some_and(|hold| end_ms <= *hold);
            (alone || among) && lock.expires_ms.is_none_or(|expires| end_ms <= expires)
        })
    }

    pub(crate) fn is_foreign(&mut self, now: Moment) -> bool {
        let server = self.at(now);
        self.key.expire(&server);
        matches!(self.key.lock.as_ref().map(|lock| &lock.value), Some(Value::Foreign(_)))
    }

    pub(crate) fn is_free(&mut self, now: Moment) -> bool {
        let server = self.at(now);
        self.key.expire(&server);
        self.key.lock.is_none()
    }

    /// Whether a client waits in the queue.
    pub(crate) fn waits(&self) -> bool {
        !self.key.queue.members.is_empty()
    }

    /// Neither a lock nor a waiter.
    pub(crate) fn is_clean(&mut self, now: Moment) -> bool {
        self.is_free(now) && self.key.queue.members.is_empty()
    }

    /// Another program deletes the key.
    pub(crate) fn delete(&mut self, now: Moment) -> Vec<HolderId> {
        let holders = self.holders(now);
        (self.foreign_until, self.key.lock) = (None, None);
        holders
    }

    /// Another program takes the key with `SET NX PX`.
    pub(crate) fn foreign_set(&mut self, now: Moment, ttl: Duration) {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap();
        let expires_ms = Some(self.micros(now) / 1000 + ttl_ms);
        self.key.lock = Some(fencelock_model::Lock { value: Value::Foreign("another".into()), expires_ms });
        self.foreign_until = Some(now + ttl);
    }

    /// It releases the key with a compare-and-delete.
    pub(crate) fn foreign_release(&mut self, now: Moment) {
        self.foreign_until = None;
        if self.is_foreign(now) {
            self.key.lock = None;
        }
    }

    pub(crate) fn carry_out(&mut self, client: u8, now: Moment, call: &Call, mutant: Option<Mutant>) -> Done {
        let before = self.key.queue.members.len();
        let mut messages = Vec::new();
        let (mut again, mut changed) = (None, false);
        let reply = match call {
            Call::Claim(claim) => {
                let reply = self.claim(client, now, claim, mutant, &mut messages);
                if reply.is_none() {
                    again = Some(Call::Claim(claim.with_intent(Intent::Poll)));
                }
                reply.map(Reply::Claim)
            }
            Call::Inspect => Some(Reply::Inspect(self.inspect(now))),
            Call::Renew(renewals) => {
                let renewed: Vec<_> = renewals.iter().map(|renewal| self.renew(now, renewal, mutant)).collect();
                let any = renewed.iter().any(|renewed| matches!(renewed, Renew::Renewed { .. }));
                if any && !self.announces_to.contains(&client) {
                    self.announces_to.push(client);
                }
                Some(Reply::Renew(renewed))
            }
            Call::Downgrade(renewal) => Some(Reply::Downgrade(self.downgrade(now, renewal, &mut messages))),
            Call::Release(holder) => {
                let released = self.release(now, *holder, mutant, &mut messages);
                changed = !self.queues && released == Release::Released;
                Some(Reply::Release(released))
            }
        };
        if mutant == Some(Mutant::SkipsReachedWaiter) && !messages.is_empty() {
            self.key.lock = None;
        }
        // As tracking with NOLOOP does: any change of the queue, once for each client that has read it, and to nobody if the client
        // made the change itself.
        let (notified, moved) = (mutant != Some(Mutant::AnnouncesNothing), before != self.key.queue.members.len());
        let mut announced_to = if notified && moved { std::mem::take(&mut self.announces_to) } else { Vec::new() };
        announced_to.retain(|other| *other != client);
        Done { reply, again, messages, changed, announced_to }
    }

    fn claim(
        &mut self,
        client: u8,
        now: Moment,
        claim: &Claim,
        mutant: Option<Mutant>,
        messages: &mut Vec<HandOff>,
    ) -> Option<Acquire> {
        let server = self.at(now);
        let intent = match claim.queueing.intent {
            Intent::Enqueue if self.queues => fencelock_model::Intent::Enqueue,
            Intent::Try | Intent::Enqueue => fencelock_model::Intent::Try,
            Intent::Poll => fencelock_model::Intent::Poll,
        };
        let asked = fencelock_model::Claim {
            intent,
            holder: number(claim.holder.id),
            owner: Some(claim.holder.owner.as_str().into()),
            ttl_ms: claim.ttl.as_millis(),
            proposal: server.now_us,
            proposed: false,
            life_ms: CLAIM_TTL_MS,
            hand_off_ms: CLAIM_TTL_MS,
            channel: Some(fencelock_model::Channel(client.into())),
            wanted: claim.queueing.block.get().into(),
            mode: claim.mode,
        };
        let publish = &mut |hand_off| deliver(messages, hand_off);
        self.key.expire(&server);
        let held = self.holders(now).contains(&claim.holder.id);
        let (before, was_open) =
            (self.key.queue.clone(), !held && (self.key.lock.is_none() || self.holds_count(now) > 0));
        if mutant == Some(Mutant::CountsNoPermits) {
            self.key.held.used.iter_mut().for_each(|used| *used = 0);
        }
        if mutant == Some(Mutant::EnqueueBarges)
            && asked.intent == fencelock_model::Intent::Enqueue
            && self.key.lock.is_none()
        {
            self.key.queue = fencelock_model::WaiterQueue::default();
        }
        let answered = self.key.acquire(&server, &asked, &Gate::Open, publish);
        if mutant == Some(Mutant::EnqueueBarges) && self.key.queue.members.is_empty() {
            self.key.queue = before.clone();
        }
        let answer = match answered.expect("a healthy server") {
            fencelock_model::Acquire::Yours => return None,
            fencelock_model::Acquire::Granted { fence, count, .. } => {
                self.overtaken |= was_open && overtakes(&before, &self.key.queue, asked.holder);
                Acquire::Granted { tokens: tokens(fence, count) }
            }
            fencelock_model::Acquire::Queued { ahead, now_us, occupied } => Acquire::Queued {
                ahead: u32::try_from(ahead).unwrap(),
                occupied: read_occupied(&occupied),
                hand_off: HandOffBounds::new(occupied.last_fence, now_us),
            },
            fencelock_model::Acquire::Gone(_) if mutant == Some(Mutant::QueuesStrangers) => Acquire::Queued {
                ahead: 0,
                occupied: Occupied::new(Occupant::Foreign(Foreign::string("")), Expiry::Never),
                hand_off: HandOffBounds::new(0, Some(server.now_us)),
            },
            fencelock_model::Acquire::Busy(occupied) => Acquire::Busy(read_occupied(&occupied)),
            fencelock_model::Acquire::Gone(_) => Acquire::Gone,
            other => unreachable!("{other:?} of a healthy server"),
        };
        Some(queued(client, asked.holder, answer, mutant, messages))
    }

    fn renew(&mut self, now: Moment, renewal: &Renewal, mutant: Option<Mutant>) -> Renew {
        let (server, holder) = (self.at(now), number(renewal.holder));
        if mutant == Some(Mutant::FalseRenewals) {
            return Renew::Renewed { waiters: 0 };
        }
        let known_ms = u64::try_from(renewal.assumed.as_millis()).unwrap_or(u64::MAX / 4).saturating_add(1);
        let answer = self.key.renew(&server, holder, renewal.ttl.as_millis(), known_ms.min(u64::MAX / 4));
        match answer.expect("a healthy server") {
            _ if mutant == Some(Mutant::RenewsTheLost) => Renew::Renewed { waiters: 0 },
            fencelock_model::Renew::Absent if mutant == Some(Mutant::RenewRecreates) => {
                let expires_ms = Some(server.now_us / 1000 + renewal.ttl.as_millis());
                self.key.lock = Some(fencelock_model::Lock { value: Value::Ours { holder, owner: None }, expires_ms });
                self.overtaken |= !self.key.queue.members.is_empty();
                Renew::Renewed { waiters: 0 }
            }
            // Where there is no queue the backend knows of no waiters.
            fencelock_model::Renew::Renewed { waiters } => Renew::Renewed { waiters: u32::try_from(waiters).unwrap() },
            fencelock_model::Renew::Absent => Renew::Absent,
            fencelock_model::Renew::Taken(value) => Renew::TakenBy(occupant(&value).into()),
            fencelock_model::Renew::Shared(listed) => Renew::TakenBy(occupant(&listed.value).into()),
        }
    }

    fn downgrade(&mut self, now: Moment, renewal: &Renewal, messages: &mut Vec<HandOff>) -> Downgrade {
        let server = self.at(now);
        let claim = fencelock_model::Claim {
            proposed: false,
            ..fencelock_model::Claim::try_for(number(renewal.holder), renewal.ttl.as_millis(), server.now_us)
        };
        let publish = &mut |hand_off| deliver(messages, hand_off);
        match self.key.downgrade(&server, &claim, &Gate::Open, publish).expect("a healthy server") {
            fencelock_model::Downgrade::Downgraded { fence, .. } => {
                Downgrade::Downgraded { token: FencingToken::new(fence).unwrap() }
            }
            fencelock_model::Downgrade::Absent => Downgrade::Absent,
            fencelock_model::Downgrade::Taken(value) => Downgrade::TakenBy(occupant(&value).into()),
            fencelock_model::Downgrade::Shared(listed) => Downgrade::TakenBy(occupant(&listed.value).into()),
            other => unreachable!("{other:?} of a healthy server"),
        }
    }

    /// Gives up what the holder has.
    pub(crate) fn release(
        &mut self,
        now: Moment,
        holder: HolderId,
        mutant: Option<Mutant>,
        messages: &mut Vec<HandOff>,
    ) -> Release {
        let server = self.at(now);
        self.key.expire(&server);
        let whom = match mutant {
            Some(Mutant::IgnoresReleases) => return Release::Released,
            Some(Mutant::ReleasesAnybody) => {
                self.key.lock.as_ref().and_then(|lock| lock.value.holder()).unwrap_or_else(|| number(holder))
            }
            _ => number(holder),
        };
        if mutant == Some(Mutant::HandsOffWhileHeld) {
            self.key.lock.take_if(|lock| lock.value.holder() != Some(whom));
        }
        let publish = &mut |hand_off| deliver(messages, hand_off);
        let released = self.key.release(&server, whom, server.now_us, CLAIM_TTL_MS, &Gate::Open, publish);
        match released.expect("a healthy server") {
            fencelock_model::Release::Released(_) => {
                self.freed.push(holder);
                Release::Released
            }
            fencelock_model::Release::Absent(_) => Release::Absent,
            fencelock_model::Release::Taken(value) => Release::TakenBy(occupant(&value).into()),
            fencelock_model::Release::Shared(listed, _) => Release::TakenBy(occupant(&listed.value).into()),
        }
    }

    fn inspect(&mut self, now: Moment) -> Option<Holding> {
        let seen = self.key.inspect(&self.at(now))?;
        Some(Holding::new(key().clone(), HolderInfo::new(occupant(&seen.by), expiry(seen.ttl_ms))))
    }
}

/// Whether a waiter that was queued before the holder of a grant is still queued.
fn overtakes(before: &fencelock_model::WaiterQueue, after: &fencelock_model::WaiterQueue, granted: u128) -> bool {
    let mut earlier = before.members.iter().map(|(_, name)| name).take_while(|name| **name != Name::Holder(granted));
    earlier.any(|name| after.members.iter().any(|(_, other)| other == name))
}

/// A position in the queue, with what a wrong server adds to it.
fn queued(client: u8, holder: u128, answer: Acquire, mutant: Option<Mutant>, messages: &mut Vec<HandOff>) -> Acquire {
    let Acquire::Queued { hand_off, .. } = &answer else { return answer };
    let next = FencingToken::new(hand_off.last_fence + 1).unwrap();
    match mutant {
        Some(Mutant::GrantsTwice) => return Acquire::Granted { tokens: next.into() },
        Some(Mutant::InventsHandOff) => messages.push(HandOff {
            channel: fencelock_model::Channel(client.into()),
            to: Name::Holder(holder),
            fence: next.get(),
            count: 1,
            lease_ms: CLAIM_TTL_MS,
        }),
        _ => {}
    }
    answer
}

fn deliver(messages: &mut Vec<HandOff>, hand_off: HandOff) -> Delivery {
    messages.push(hand_off);
    Delivery::Received
}

pub(crate) fn id(number: u128) -> HolderId {
    HolderId::from_bytes(number.to_be_bytes())
}

pub(crate) fn number(holder: HolderId) -> u128 {
    u128::from_str_radix(std::str::from_utf8(&holder.hex()).unwrap(), 16).unwrap()
}

/// The `count` tokens that end with `fence`.
pub(crate) fn tokens(fence: u64, count: u64) -> TokenBlock {
    let count = NonZeroU32::new(u32::try_from(count).unwrap()).unwrap();
    TokenBlock::ending(FencingToken::new(fence).unwrap(), count)
}

fn occupant(value: &Value) -> Occupant {
    match value {
        Value::Ours { holder, owner } => {
            let owner = Owner::from_text(owner.as_deref().unwrap_or_default());
            Occupant::Holder(Holder { id: id(*holder), owner })
        }
        Value::Shared { .. } => Occupant::Foreign(Foreign::string(&value.to_string())),
        Value::Foreign(text) => Occupant::Foreign(Foreign::string(text)),
        Value::Other(kind) => Occupant::Foreign(Foreign::other(kind.name())),
    }
}

fn expiry(ttl_ms: Option<u64>) -> Expiry {
    ttl_ms.map_or(Expiry::Never, |ms| Expiry::In(Duration::from_millis(ms)))
}

fn read_occupied(occupied: &fencelock_model::Occupied) -> Occupied {
    Occupied::new(occupant(&occupied.by), expiry(occupied.ttl_ms))
}
