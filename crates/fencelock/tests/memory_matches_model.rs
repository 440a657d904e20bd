//! The memory backend against the model of the scripts (`fencelock_conformance::model`): every answer, hand-off and token is
//! the same. So one key has two models, the abstract one of the searches and this one.
//!
//! Waiters poll whenever time passes, as clients do: when a waiter that does not is forgotten, both may choose.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock::backends::{ManualClock, Memory};
use fencelock_conformance::model::{self, Channel, Delivery, Gate, HandOff, HoldKind, KeyModel, Name, Server, Value};
use fencelock_core::{
    Acquire, Backend, Claim, Clock, Event, Eviction, Expiry, FencingToken, Holder, HolderId, Intent, Key, Listener,
    Occupant, Occupied, Owner, QuorumNode, Raise, Release, Renew, Renewal, TokenBlock, Ttl,
};
use futures_util::FutureExt as _;
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HAND_OFF_MS: u64 = 3000;
/// For each holder: its lease in milliseconds, and the number of tokens that it requests.
const HOLDERS: [(u64, u32); 4] = [(700, 1), (1000, 3), (5000, 1), (9000, 50)];

#[derive(Debug, Clone)]
enum Step {
    Claim(usize, Intent),
    Renew(usize, u64),
    Release(usize),
    /// By so much above the last token, or below it.
    Raise(usize, i64),
    Inspect,
    Evict,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let holder = 0..HOLDERS.len();
    let intent = prop_oneof![Just(Intent::Try), Just(Intent::Enqueue), Just(Intent::Poll)];
    let step = prop_oneof![
        6 => (holder.clone(), intent).prop_map(|(holder, intent)| Step::Claim(holder, intent)),
        2 => (holder.clone(), 100..6000_u64).prop_map(|(holder, ms)| Step::Renew(holder, ms)),
        3 => holder.clone().prop_map(Step::Release),
        1 => (holder, -5..50_i64).prop_map(|(holder, by)| Step::Raise(holder, by)),
        1 => Just(Step::Inspect),
        1 => Just(Step::Evict),
        3 => (1..1500_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

/// What both say, in one form.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Granted { last: u64, count: u64 },
    Queued { ahead: u64, last_fence: u64, by: u128, ttl_ms: u64 },
    Busy { by: u128, ttl_ms: u64 },
    Held { by: u128, ttl_ms: u64, fence: u64, waiters: u64 },
    Handed { to: u128, last: u64, count: u64, lease_ms: u64 },
    Renewed(u64),
    Taken(u128),
    Nobody,
    Yes,
    No,
}

/// Both, side by side.
struct Pair {
    clock: Arc<ManualClock>,
    memory: Memory,
    model: KeyModel,
    key: Key,
    events: Arc<Events>,
    /// What the next raise raises to.
    to: u64,
}

#[derive(Debug, Default)]
struct Events(Mutex<Vec<Said>>);

impl Listener for Events {
    fn event(&self, event: &Event) {
        if let Event::Handed { holder, tokens, claim_ttl, .. } = event {
            let (last, count) = block(*tokens);
            self.0.lock().unwrap().push(Said::Handed { to: id(holder), last, count, lease_ms: ms(*claim_ttl) });
        }
    }
}

impl Pair {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(1_780_000_000)));
        let clock_of_memory: Arc<dyn Clock> = clock.clone();
        let (memory, events) = (Memory::with_leases(clock_of_memory), Arc::new(Events::default()));
        let listener: Arc<dyn Listener> = events.clone();
        memory.listen(listener);
        Self { clock, memory, model: KeyModel::default(), key: Key::new("k").unwrap(), events, to: 1 }
    }

    /// Does the step on both, and compares what they say.
    fn play(&mut self, step: &Step) {
        let server = Server::at(self.clock.wall_micros());
        if let Step::Raise(_, by) = step {
            let fence = self.model.fence.map_or(1, |fence| fence.token);
            self.to = fence.saturating_add_signed(*by).max(1);
        }
        let mut handed = Vec::new();
        let expected = self.of_model(step, &server, &mut |hand_off| {
            let HandOff { to, fence, count, lease_ms, .. } = hand_off;
            handed.push(Said::Handed { to: named(&to), last: fence, count, lease_ms });
            Delivery::Received
        });
        let answer = self.of_memory(step);
        assert_eq!(answer, expected, "{step:?}");
        assert_eq!(std::mem::take(&mut *self.events.0.lock().unwrap()), handed, "{step:?}");
        if let Step::Wait(_) = step {
            for waiting in self.model.queue.members.clone() {
                let holder = usize::try_from(named(&waiting.1)).unwrap();
                self.play(&Step::Claim(holder, Intent::Poll));
            }
        }
    }

    fn of_model(&mut self, step: &Step, server: &Server, tell: &mut impl FnMut(HandOff) -> Delivery) -> Said {
        let (model, now, open) = (&mut self.model, server.now_us, &Gate::Open);
        match step {
            Step::Claim(holder, intent) => {
                let (ttl_ms, wanted) = HOLDERS[*holder];
                let mut claim = model::Claim::try_for(*holder as u128, ttl_ms, now);
                (claim.proposed, claim.wanted, claim.channel) = (false, wanted.into(), Some(Channel(0)));
                claim.intent = match intent {
                    Intent::Try => model::Intent::Try,
                    Intent::Enqueue => model::Intent::Enqueue,
                    Intent::Poll => model::Intent::Poll,
                };
                let mut answer = model.acquire(server, &claim, open, tell).unwrap();
                if answer == model::Acquire::Yours {
                    // As production does, for the full lease.
                    claim.intent = model::Intent::Poll;
                    answer = model.acquire(server, &claim, open, tell).unwrap();
                }
                match answer {
                    model::Acquire::Granted { fence, count, .. } => Said::Granted { last: fence, count },
                    model::Acquire::Queued {
                        ahead, occupied: model::Occupied { last_fence, ttl_ms, by, .. }, ..
                    } => Said::Queued { ahead, last_fence, by: by.holder().unwrap(), ttl_ms: ttl_ms.unwrap() },
                    model::Acquire::Busy(by) => Said::Busy { by: by.by.holder().unwrap(), ttl_ms: by.ttl_ms.unwrap() },
                    model::Acquire::Gone => Said::Nobody,
                    other => panic!("{other:?}"),
                }
            }
            Step::Renew(holder, ttl_ms) => match model.renew(server, *holder as u128, *ttl_ms, 1_000_000).unwrap() {
                model::Renew::Renewed { waiters } => Said::Renewed(waiters),
                model::Renew::Absent => Said::Nobody,
                model::Renew::Taken(by) => Said::Taken(by.holder().unwrap()),
                model::Renew::Shared(listed) => Said::Taken(listed.holds[0].holder),
            },
            Step::Release(holder) => {
                match model.release(server, *holder as u128, now, HAND_OFF_MS, open, tell).unwrap() {
                    model::Release::Released(_) => Said::Yes,
                    model::Release::Absent(_) => Said::Nobody,
                    model::Release::Taken(by) => Said::Taken(by.holder().unwrap()),
                    model::Release::Shared(listed, _) => Said::Taken(listed.holds[0].holder),
                }
            }
            Step::Raise(holder, _) => {
                let raised = model.raise(server, *holder as u128, self.to, open).unwrap();
                if raised == model::Raise::Acked { Said::Yes } else { Said::No }
            }
            Step::Inspect => model.inspect(server).map_or(Said::Nobody, |held| Said::Held {
                by: held.by.holder().unwrap(),
                ttl_ms: held.ttl_ms.unwrap(),
                fence: held.fence.unwrap(),
                waiters: held.waiters,
            }),
            Step::Evict => {
                let Some(seen) = model.inspect(server).map(|held| held.by) else { return Said::Nobody };
                let seen: (&Value, HoldKind) = (&seen, HoldKind::Ours);
                let evicted = model.evict(server, seen, now, HAND_OFF_MS, open, tell).unwrap();
                if evicted == model::Evict::AnotherByNow { Said::No } else { Said::Yes }
            }
            Step::Wait(_) => Said::Yes,
        }
    }

    fn of_memory(&self, step: &Step) -> Said {
        let (memory, key) = (&self.memory, &self.key);
        match step {
            Step::Claim(number, intent) => {
                let (ttl_ms, wanted) = HOLDERS[*number];
                let ttl = Ttl::new(Duration::from_millis(ttl_ms)).unwrap();
                let owner = Owner::new("h", 1, None).unwrap();
                let claim = Claim::new(key.clone(), Holder { id: holder(*number), owner }, ttl, *intent);
                let claim = claim.with_block(NonZeroU32::new(wanted).unwrap());
                match memory.acquire(&claim).now_or_never().unwrap().unwrap() {
                    Acquire::Granted { tokens } => {
                        let (last, count) = block(tokens);
                        Said::Granted { last, count }
                    }
                    Acquire::Queued { ahead, last_fence, occupied, .. } => {
                        let (by, ttl_ms) = occupier(&occupied);
                        Said::Queued { ahead: ahead.into(), last_fence, by, ttl_ms }
                    }
                    Acquire::Busy(occupied) => {
                        let (by, ttl_ms) = occupier(&occupied);
                        Said::Busy { by, ttl_ms }
                    }
                    Acquire::Gone => Said::Nobody,
                }
            }
            Step::Renew(number, ttl_ms) => {
                let ttl = Ttl::new(Duration::from_millis(*ttl_ms)).unwrap();
                let renewal = [Renewal::new(key.clone(), holder(*number), ttl)];
                match memory.renew(&renewal).now_or_never().unwrap().remove(0).unwrap() {
                    Renew::Renewed { waiters } => Said::Renewed(waiters.into()),
                    Renew::Absent => Said::Nobody,
                    Renew::TakenBy(by) => Said::Taken(occupant(by.first())),
                }
            }
            Step::Release(number) => match memory.release(key, &holder(*number)).now_or_never().unwrap().unwrap() {
                Release::Released => Said::Yes,
                Release::Absent => Said::Nobody,
                Release::TakenBy(by) => Said::Taken(occupant(by.first())),
            },
            Step::Raise(number, _) => {
                let to = FencingToken::new(self.to).unwrap();
                let raised = memory.raise(key, &holder(*number), to).now_or_never().unwrap().unwrap();
                if raised == Raise::Acked { Said::Yes } else { Said::No }
            }
            Step::Inspect => {
                let held = memory.inspect(key).now_or_never().unwrap().unwrap();
                held.map_or(Said::Nobody, |held| Said::Held {
                    by: occupant(&held.first().occupant),
                    ttl_ms: left(held.first().expiry),
                    fence: held.first().fence.unwrap().get(),
                    waiters: held.waiters.into(),
                })
            }
            Step::Evict => {
                let Some(held) = memory.inspect(key).now_or_never().unwrap().unwrap() else { return Said::Nobody };
                let evicted = memory.evict(&held).now_or_never().unwrap().unwrap();
                if evicted == Eviction::Evicted { Said::Yes } else { Said::No }
            }
            Step::Wait(ms) => {
                self.clock.advance(Duration::from_millis(*ms));
                // Whether a lease counts in the millisecond in which it ends is luck, on a server.
                let ends = self.model.lock.as_ref().and_then(|lock| lock.expires_ms);
                if ends == Some(self.clock.wall_micros() / 1000) {
                    self.clock.advance(Duration::from_millis(1));
                }
                Said::Yes
            }
        }
    }
}

fn holder(number: usize) -> HolderId {
    HolderId::from_bytes((number as u128).to_be_bytes())
}

fn id(holder: &HolderId) -> u128 {
    u128::from_str_radix(std::str::from_utf8(&holder.hex()).unwrap(), 16).unwrap()
}

fn named(name: &Name) -> u128 {
    let Name::Holder(holder) = name else { panic!("{name:?}") };
    *holder
}

fn occupant(by: &Occupant) -> u128 {
    id(&by.holder_id().unwrap())
}

fn occupier(occupied: &Occupied) -> (u128, u64) {
    (occupant(occupied.holders.first()), left(occupied.expiry))
}

fn left(expiry: Expiry) -> u64 {
    let Expiry::In(span) = expiry else { panic!("a lease ends") };
    ms(span)
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap()
}

fn block(tokens: TokenBlock) -> (u64, u64) {
    (tokens.last().get(), tokens.count().get().into())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_answers_as_the_model_of_the_scripts(steps in steps()) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.play(step);
        }
    }
}
