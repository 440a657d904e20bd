//! Tasks of one client that share holds to read, on a backend where another client writes now and then, in random schedules: a task
//! that may read has a hold on the backend and overlaps no writer, a release ends the reading of one task only, and nothing is left.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod backend;

use backend::TestBackend;
use fencelock_core::engine::{
    AcquireRequest, Action, Actions, Config, Context, Duty, End, Grant, HoldId, KeyEngine, LeaseSharing, Leaving, Rng,
    SharingLimits, Status, Step, WaiterId,
};
use fencelock_core::{Capabilities, Drift, Fault, HolderId, Invalid, Key, Mode, Moment, Owner, Ttl, Unknown};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

type Engine = KeyEngine<Option<u8>, ()>;
type Cx<'a> = Context<'a, Option<u8>, ()>;

#[derive(Debug, Clone)]
enum Act {
    Enter {
        odd: bool,
    },
    Cancel(prop::sample::Index),
    Release(prop::sample::Index),
    Detach(prop::sample::Index),
    WriterComes,
    WriterGoes,
    Pass(u64),
    /// The answers to the next requests are lost; with `carried_out` only the answers.
    Lose {
        carried_out: bool,
        requests: u8,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let which = any::<prop::sample::Index>;
    let act = prop_oneof![
        8 => prop::bool::weighted(0.1).prop_map(|odd| Act::Enter { odd }),
        1 => which().prop_map(Act::Cancel),
        6 => which().prop_map(Act::Release),
        1 => which().prop_map(Act::Detach),
        1 => Just(Act::WriterComes),
        2 => Just(Act::WriterGoes),
        6 => prop_oneof![0..5_u64, 5..1500_u64].prop_map(Act::Pass),
        1 => (any::<bool>(), 1..4_u8).prop_map(|(carried_out, requests)| Act::Lose { carried_out, requests }),
    ];
    prop::collection::vec(act, 1..120)
}

struct Count(u64);

impl Rng for Count {
    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        self.0 += 1;
        Ok(HolderId::from_bytes(u128::from(self.0).to_be_bytes()))
    }
}

struct World {
    key: Key,
    config: Config,
    engine: Engine,
    backend: TestBackend,
    now: Moment,
    rng: Count,
    timers: BTreeMap<HoldId, Moment>,
    tasks: Vec<(WaiterId, Moment)>,
    guards: Vec<(Grant, HolderId)>,
    detached: Vec<HolderId>,
    lose: (bool, u8),
    joined: u32,
}

impl World {
    fn new() -> Self {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.queues) = (true, true);
        let config = Config {
            backend: "backend".to_owned(),
            capabilities,
            drift: Drift::default(),
            sharing: Some(SharingLimits::default()),
        };
        Self {
            key: Key::new("k").unwrap(),
            config,
            engine: Engine::default(),
            backend: TestBackend::default(),
            now: Moment::from_micros(1_000_000_000),
            rng: Count(0),
            timers: BTreeMap::new(),
            tasks: Vec::new(),
            guards: Vec::new(),
            detached: Vec::new(),
            lose: (false, 0),
            joined: 0,
        }
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R) -> R {
        let mut out = Actions::new();
        let (key, config, now, rng) = (&self.key, &self.config, self.now, &mut self.rng);
        let answer = call(&mut self.engine, &mut Context { key, config, now, rng, out: &mut out });
        for action in out.drain() {
            match action {
                Action::SetTimer { hold, to, .. } => _ = self.timers.insert(hold, to),
                Action::Ended(ended) => {
                    let reported = ended.others.is_empty() || matches!(ended.end, End::Lost(_));
                    assert!(reported, "the others are not notified of a loss");
                    self.timers.remove(&ended.hold);
                }
                Action::Release(release) => self.backend.release_pending(&release, self.now),
                _ => {}
            }
        }
        answer
    }

    /// What a request is answered, if it is.
    fn send<T>(&mut self, request: impl FnOnce(&mut TestBackend, Moment) -> T) -> Result<T, Unknown> {
        let no_answer = || Unknown::new("backend", Fault::Timeout, "");
        let (carried_out, left) = self.lose;
        if left == 0 {
            return Ok(request(&mut self.backend, self.now));
        }
        self.lose.1 -= 1;
        if carried_out {
            request(&mut self.backend, self.now);
        }
        Err(no_answer())
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Enter { odd } => {
                let ttl = Ttl::new(Duration::from_secs(if *odd { 4 } else { 3 })).unwrap();
                let request = AcquireRequest {
                    mode: Mode::Shared,
                    owner: Owner::new("host", 1, None).unwrap(),
                    ttl,
                    wait: None,
                    retry: None,
                    max_hold: None,
                    lease_sharing: LeaseSharing::Allowed,
                };
                let arrived = self.now;
                let id = self.call(|engine, cx| engine.enter(request, arrived, false, cx));
                self.tasks.push((id, Moment::NEVER));
            }
            Act::Cancel(which) if !self.tasks.is_empty() => {
                let (id, _) = self.tasks.swap_remove(which.index(self.tasks.len()));
                if let Some(grant) = self.call(|engine, cx| engine.leave(id, cx)) {
                    self.call(|engine, cx| engine.release(grant.hold, grant.tenure, true, cx));
                }
            }
            Act::Release(which) if !self.guards.is_empty() => self.release(which.index(self.guards.len())),
            Act::Detach(which) if !self.guards.is_empty() => {
                let (grant, holder) = self.guards.swap_remove(which.index(self.guards.len()));
                let was = self.call(|engine, cx| engine.detach(grant.hold, grant.tenure, cx));
                if matches!(was, Status::Held(_)) {
                    self.detached.push(holder);
                    let lost = self.guards.iter().any(|(other, _)| other.hold == grant.hold);
                    assert!(!lost || self.held().iter().all(|(_, other)| *other != holder), "others read on");
                }
            }
            Act::WriterComes => self.backend.writer_comes(self.now),
            Act::WriterGoes => self.backend.writer_goes(self.now),
            Act::Pass(ms) => self.pass(Duration::from_millis(*ms)),
            Act::Lose { carried_out, requests } => self.lose = (*carried_out, *requests),
            _ => {}
        }
        self.settle();
        self.check();
    }

    fn release(&mut self, which: usize) {
        let (grant, holder) = self.guards.swap_remove(which);
        let others = self.held();
        match self.call(|engine, cx| engine.release(grant.hold, grant.tenure, false, cx)) {
            Leaving::PassedOn => assert!(others.iter().any(|(other, _)| other.hold == grant.hold), "nobody reads on"),
            // The hold is another process's.
            Leaving::Over if self.detached.contains(&holder) => {}
            // As its guard does.
            Leaving::Release | Leaving::Over => self.backend.release(holder, self.now),
        }
        assert_eq!(self.held().len(), others.len(), "a release ended the reading of another task");
    }

    /// The guards that may read.
    fn held(&mut self) -> Vec<(Grant, HolderId)> {
        let mut held = self.guards.clone();
        held.retain(|(grant, _)| {
            matches!(self.call(|engine, cx| engine.status(grant.hold, grant.tenure, cx)), Status::Held(_))
        });
        held
    }

    /// Lets time pass in steps, so that timers fire when they are due.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            let tasks = self.tasks.iter().map(|(_, sleep)| *sleep);
            let next = self.timers.values().copied().chain(tasks).filter(|at| *at > self.now).min();
            self.now = next.unwrap_or(until).min(until);
            self.backend.expire(self.now);
            self.settle();
            self.check();
        }
    }

    /// Delivers messages, fires timers and runs tasks, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..50 {
            for (holder, tokens) in std::mem::take(&mut self.backend.handed) {
                let waits = self.call(|engine, cx| engine.on_hand_off(holder, tokens, Duration::from_secs(3), cx));
                if !waits {
                    self.backend.release(holder, self.now);
                }
            }
            for (hold, at) in self.timers.clone() {
                if at <= self.now {
                    self.timers.remove(&hold);
                    self.fire(hold, at);
                }
            }
            for (id, sleep) in std::mem::take(&mut self.tasks) {
                self.run(id, sleep);
            }
        }
    }

    fn fire(&mut self, hold: HoldId, at: Moment) {
        let (sent, soon) = (self.now, self.now + Duration::from_millis(1));
        let duty = self.call(|engine, cx| engine.hold_due(hold, at, Duration::ZERO, soon, cx));
        if let Duty::Renew(renewal) = duty {
            let answer = self.send(|backend, now| backend.renew(&renewal, now));
            self.call(|engine, cx| engine.renewal_answered(hold, sent, answer, cx));
        }
    }

    /// Runs a task until it waits.
    fn run(&mut self, id: WaiterId, sleep: Moment) {
        let mut next = self.call(|engine, cx| engine.poll(id, cx));
        if next.is_none() && sleep <= self.now {
            next = Some(self.call(|engine, cx| engine.timer_fired(id, cx)));
        }
        let Some(mut step) = next else { return self.tasks.push((id, sleep)) };
        loop {
            let sent = self.now;
            step = match step {
                Step::Wait => return self.tasks.push((id, Moment::NEVER)),
                Step::Sleep { until, .. } => {
                    return self.tasks.push((id, until.max(self.now + Duration::from_micros(1))));
                }
                Step::Claim(claim) => {
                    self.engine.claim_sent(id);
                    let answer = self.send(|backend, now| backend.claim(&claim, now));
                    self.call(|engine, cx| engine.claim_answered(id, sent, answer, cx))
                }
                Step::Inspect => self.call(|engine, cx| engine.inspected(id, Ok(None), cx)),
                Step::Leave(holder) => {
                    self.backend.release(holder, sent);
                    self.call(|engine, cx| engine.left(id, Ok(fencelock_core::Release::Absent), cx))
                }
                Step::Granted(grant) => {
                    // A lease that is over by now is waited for again.
                    if let Some((holder, ..)) = self.engine.facts(grant.hold) {
                        self.joined += u32::from(self.guards.iter().any(|(other, _)| other.hold == grant.hold));
                        self.guards.push((grant, holder));
                    }
                    return;
                }
                Step::Refused(_) => return,
            };
        }
    }

    fn check(&mut self) {
        let held = self.held();
        for (grant, holder) in &held {
            assert!(self.backend.has(*holder), "a task reads without a hold on the backend: {grant:?}");
            assert!(!self.backend.writes, "a task reads while a writer holds the key: {grant:?}");
        }
    }

    /// Everybody leaves. What was given away stays.
    fn wind_down(&mut self) {
        self.lose = (false, 0);
        while !self.guards.is_empty() {
            self.release(0);
        }
        for (id, _) in std::mem::take(&mut self.tasks) {
            if let Some(grant) = self.call(|engine, cx| engine.leave(id, cx)) {
                self.call(|engine, cx| engine.release(grant.hold, grant.tenure, true, cx));
            }
        }
        self.backend.writer_goes(self.now);
        self.settle();
        assert!(self.engine.is_empty() && self.timers.is_empty(), "the engine keeps something");
        for holder in std::mem::take(&mut self.detached) {
            self.backend.release(holder, self.now);
        }
        assert!(self.backend.is_free(), "left on the backend: {:?}", self.backend);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_has_a_hold_and_overlaps_no_writer(acts in acts()) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
        }
        world.wind_down();
    }
}

#[test]
fn readers_join_in_these_schedules() {
    let mut world = World::new();
    // A key without an earlier token has one.
    world.act(&Act::WriterComes);
    world.act(&Act::Pass(1));
    world.act(&Act::WriterGoes);
    world.act(&Act::Pass(1));
    for _ in 0..10 {
        world.act(&Act::Enter { odd: false });
        world.act(&Act::Pass(1));
    }
    assert_eq!((world.guards.len(), world.joined, world.backend.row.len()), (10, 9, 1));
    let mut tokens: Vec<_> = world.guards.iter().map(|(grant, _)| grant.tenure.fence).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 10, "each has a token of its own");
    // The first one that joins checks whether a client waits.
    world.act(&Act::WriterComes);
    for _ in 0..3 {
        world.act(&Act::Pass(100));
        world.act(&Act::Enter { odd: false });
    }
    world.act(&Act::Pass(100));
    assert_eq!(world.guards.len(), 11, "the others wait behind the writer");
    world.wind_down();
}
