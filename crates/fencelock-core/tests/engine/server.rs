//! The server: a [`KeyTable`], and the clock that it goes by.

use crate::mutants::Mutant;
use crate::network::{Call, Reply, key};
use crate::scenario::LONG;
use fencelock_core::{
    Acquire, Claim, ClaimReply, ClockReading, Event, Eviction, Expiry, FencingToken, Foreign, HandOffBounds, Holder,
    HolderId, HolderInfo, Holding, Intent, KeyTable, Mode, Moment, Occupant, Occupied, Owner, Release, Renew, Request,
    Ttl, Unknown,
};
use std::time::Duration;

/// The server's clock when the schedule begins.
const EPOCH: u64 = 1_780_000_000_000_000;
/// Another program, which tries once.
const ANOTHER: HolderId = HolderId::from_bytes([u8::MAX; 16]);

#[derive(Debug, Clone, Hash)]
pub(crate) struct Server {
    pub(crate) table: KeyTable,
    queues: bool,
    ppm: u64,
    /// Who waited when somebody held the key last.
    queue: Vec<HolderId>,
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
    pub(crate) reply: Reply,
    pub(crate) events: Vec<Event>,
    /// The key was freed without a hand-off.
    pub(crate) changed: bool,
}

impl Server {
    pub(crate) fn new(queues: bool, ppm: u64) -> Self {
        let mut table = KeyTable::new("").with_leases();
        // The key was held before, so the first grant may be of several tokens.
        let before = ClockReading::from_micros(EPOCH / 2);
        table.answer(Request::Claim(&claim_of_another(LONG), None), before);
        table.answer(Request::Release(key(), &ANOTHER), before);
        let (announces_to, freed, queue) = (Vec::new(), Vec::new(), Vec::new());
        Self { table, queues, ppm, queue, foreign_until: None, overtaken: false, announces_to, freed }
    }

    /// What the server's clock shows.
    fn at(&self, now: Moment) -> ClockReading {
        let micros = now.as_micros();
        ClockReading::from_micros(EPOCH + micros + micros * self.ppm / 1_000_000)
    }

    pub(crate) fn holding(&self, now: Moment) -> Option<Holding> {
        self.table.list(self.at(now).now).pop()
    }

    /// All whose lock it is.
    pub(crate) fn holders(&self, now: Moment) -> Vec<HolderId> {
        holders(self.holding(now).as_ref())
    }

    /// When the lock has ended, if it does so by itself.
    pub(crate) fn lock_ends(&self, now: Moment) -> Option<Moment> {
        let now = self.at(now).now;
        let end = |held: &HolderInfo| if let Expiry::In(left) = held.expiry { now + left } else { Moment::NEVER };
        let last = self.table.list(now).pop()?.holders.iter().map(end).max()?;
        let since = u128::from(last.as_micros() - EPOCH) * 1_000_000 / u128::from(1_000_000 + self.ppm);
        // Rounded up.
        Some(Moment::from_micros(u64::try_from(since).unwrap() + 1))
    }

    /// Whether the lock is this holder's, and will be until then by the server's clock.
    pub(crate) fn has_until(&self, holder: HolderId, now: Moment, until: Moment) -> bool {
        let left = self.at(until.min(now + LONG * 2)).now.since(self.at(now).now);
        let holding = self.holding(now);
        let mut holds = holding.iter().flat_map(|holding| holding.holders.iter());
        holds.any(|held| held.holder_id() == Some(holder) && held.expiry.span().is_some_and(|rest| left <= rest))
    }

    /// Neither a lock nor a waiter that polled after this moment.
    pub(crate) fn is_clean(&self, now: Moment, polled: Moment) -> bool {
        let mut table = self.table.clone();
        table.answer(Request::Inspect(key()), self.at(now));
        let tried = table.answer(Request::Claim(&claim_of_another(LONG), None), self.at(polled));
        matches!(ClaimReply::try_from(tried), Ok(ClaimReply { answer: Ok(Acquire::Granted { .. }), .. }))
    }

    /// Another program ends the holds. Returns them with the last token.
    pub(crate) fn evict(&mut self, now: Moment) -> Vec<(HolderId, u64)> {
        self.foreign_until = None;
        let Some(seen) = self.holding(now) else { return Vec::new() };
        let _: Eviction = self.ask(now, Request::Evict(&seen));
        let last = seen.holders.iter().filter_map(|held| held.fence).max().map_or(0, FencingToken::get);
        holders(Some(&seen)).into_iter().map(|holder| (holder, last)).collect()
    }

    /// Another program tries to get the key.
    pub(crate) fn foreign_set(&mut self, now: Moment, ttl: Duration) {
        let tried: ClaimReply = self.ask(now, Request::Claim(&claim_of_another(ttl), None));
        self.foreign_until = matches!(tried.answer, Ok(Acquire::Granted { .. })).then(|| now + ttl);
    }

    pub(crate) fn foreign_release(&mut self, now: Moment) {
        self.foreign_until = None;
        let _: Release = self.ask(now, Request::Release(key(), &ANOTHER));
    }

    /// Whether another program relies on the key and does not have it.
    pub(crate) fn foreign_is_lost(&self, now: Moment) -> bool {
        self.foreign_until.is_some_and(|until| now < until) && !self.holders(now).contains(&ANOTHER)
    }

    /// Answers a request, and notices if it was out of turn.
    fn ask<T: TryFrom<fencelock_core::Reply, Error = Unknown>>(&mut self, now: Moment, request: Request<'_>) -> T {
        let had = self.holders(now);
        let reply = self.table.answer(request, self.at(now));
        if let Some(holding) = self.holding(now) {
            let waiters = holding.queue.iter().flatten();
            let queue: Vec<_> = waiters.map(|waiter| waiter.holder.id).collect();
            for holder in holders(Some(&holding)).iter().filter(|holder| !had.contains(holder)) {
                let mut before = self.queue.iter().take_while(|waiter| *waiter != holder);
                self.overtaken |= before.any(|waiter| queue.contains(waiter));
            }
            self.queue = queue;
        }
        reply.try_into().expect("a healthy server")
    }

    pub(crate) fn carry_out(&mut self, client: u8, now: Moment, call: &Call, mutant: Option<Mutant>) -> Done {
        let reply = match call {
            Call::Claim(claim) => Reply::Claim(self.claim(now, claim, mutant)),
            Call::Inspect => Reply::Inspect(self.ask(now, Request::Inspect(key()))),
            Call::Renew(renewals) => {
                let mut renewed = vec![Renew::Renewed { waiters: 0 }; renewals.len()];
                if mutant != Some(Mutant::FalseRenewals) {
                    let answers: Vec<Result<Renew, Unknown>> = self.ask(now, Request::Renew(renewals));
                    if mutant != Some(Mutant::RenewsTheLost) {
                        renewed = answers.into_iter().map(Result::unwrap).collect();
                    }
                }
                let any = renewed.iter().any(|renewed| matches!(renewed, Renew::Renewed { .. }));
                if any && !self.announces_to.contains(&client) {
                    self.announces_to.push(client);
                }
                Reply::Renew(renewed)
            }
            Call::Downgrade(renewal) => Reply::Downgrade(self.ask(now, Request::Downgrade(renewal, None))),
            Call::Release(holder) => Reply::Release(self.release(now, *holder, mutant)),
        };
        let changed = !self.queues && matches!(reply, Reply::Release(Release::Released));
        let mut events = self.table.take_events();
        if let (Some(Mutant::InventsHandOff), Call::Claim(claim), Reply::Claim(Acquire::Queued { hand_off, .. })) =
            (mutant, call, &reply)
        {
            let tokens = FencingToken::new(hand_off.last_fence + 1).unwrap().into();
            let (key, holder, claim_ttl) = (key().clone(), claim.holder.id, KeyTable::CLAIM_TTL);
            events.push(Event::Handed { key, holder, tokens, claim_ttl });
        }
        if let (Some(Mutant::SkipsReachedWaiter), Some(Event::Handed { holder, .. })) = (mutant, events.first()) {
            let _: Release = self.ask(now, Request::Release(key(), holder));
            events.append(&mut self.table.take_events());
        }
        Done { reply, events, changed }
    }

    fn claim(&mut self, now: Moment, claim: &Claim, mutant: Option<Mutant>) -> Acquire {
        let mut claim = claim.clone();
        if !self.queues && !claim.is_poll() {
            claim = claim.with_intent(Intent::Try);
        }
        if mutant == Some(Mutant::CountsNoPermits) {
            claim = claim.with_mode(Mode::Shared);
        }
        let reply: ClaimReply = self.ask(now, Request::Claim(&claim, None));
        match (reply.answer.expect("a healthy server"), mutant) {
            (Acquire::Gone, Some(Mutant::QueuesStrangers)) => Acquire::Queued {
                ahead: 0,
                occupied: Occupied::new(Occupant::Foreign(Foreign::string("")), Expiry::Never),
                hand_off: HandOffBounds::new(0, None),
            },
            (Acquire::Queued { hand_off, .. }, Some(Mutant::GrantsTwice)) => {
                Acquire::Granted { tokens: FencingToken::new(hand_off.last_fence + 1).unwrap().into() }
            }
            (answer, _) => answer,
        }
    }

    /// Gives up what the holder has.
    pub(crate) fn release(&mut self, now: Moment, mut holder: HolderId, mutant: Option<Mutant>) -> Release {
        match (mutant, self.holders(now).as_slice()) {
            (Some(Mutant::IgnoresReleases), _) => return Release::Released,
            (Some(Mutant::ReleasesAnybody), [first, ..]) => holder = *first,
            (Some(Mutant::HandsOffWhileHeld), held) if !held.contains(&holder) => _ = self.evict(now),
            _ => {}
        }
        let released = self.ask(now, Request::Release(key(), &holder));
        if released == Release::Released {
            self.freed.push(holder);
        }
        released
    }
}

fn holders(holding: Option<&Holding>) -> Vec<HolderId> {
    holding.iter().flat_map(|holding| holding.holders.iter()).filter_map(HolderInfo::holder_id).collect()
}

fn claim_of_another(ttl: Duration) -> Claim {
    let holder = Holder { id: ANOTHER, owner: Owner::from_text("another") };
    Claim::new(key().clone(), holder, Ttl::new(ttl).unwrap(), Intent::Try)
}
