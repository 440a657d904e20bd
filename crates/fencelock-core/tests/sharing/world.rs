//! One client, its tasks, and the backend.

use crate::backend::TestBackend;
use fencelock_core::engine::{
    AcquireKey, AcquireNext, AcquireRequest, Action, Actions, Config, Context, Duty, End, Firing, Grant, HoldId,
    KeyEngine, KeyReply, KeyRequest, LeaseSharing, Leaving, SharingLimits, Status,
};
use fencelock_core::{Capabilities, Drift, Fault, HolderId, Key, KeyTable, Mode, Moment, Owner, Release, Ttl, Unknown};
use fencelock_model::SplitMix;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

type Engine = KeyEngine<Option<u8>, ()>;
type Cx<'a> = Context<'a, Option<u8>, ()>;

#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// An odd task claims with another TTL.
    Enter {
        odd: bool,
    },
    Cancel(proptest::sample::Index),
    Release(proptest::sample::Index),
    Detach(proptest::sample::Index),
    OtherComes {
        number: u8,
        weight: u32,
    },
    OtherGoes {
        number: u8,
    },
    /// The holds of the client are deleted.
    Forget,
    Pass(u64),
    /// The answers to the next requests are lost; with `carried_out` only the answers.
    Lose {
        carried_out: bool,
        requests: u8,
    },
}

#[derive(Debug)]
struct Task {
    acquire: AcquireKey,
    /// How many came before.
    number: u32,
    rests_until: Moment,
}

pub(crate) struct World {
    key: Key,
    pub(crate) config: Config,
    pub(crate) announces: bool,
    engine: Engine,
    pub(crate) backend: TestBackend,
    mode: Mode,
    pub(crate) now: Moment,
    rng: SplitMix,
    timers: BTreeMap<HoldId, Moment>,
    tasks: Vec<Task>,
    pub(crate) guards: Vec<(Grant, HolderId)>,
    pub(crate) granted: u32,
    tokens: BTreeSet<u64>,
    detached: Vec<HolderId>,
    lose: (bool, u8),
    /// A task with another TTL has come.
    odd: bool,
    arrived: u32,
    /// What the client has released in the background.
    given_up: BTreeSet<[u8; HolderId::HEX_LEN]>,
}

impl World {
    /// Tasks that request this mode.
    pub(crate) fn new(mode: Mode) -> Self {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.queues) = (true, true);
        let config = Config {
            backend: "backend".to_owned(),
            capabilities,
            drift: Drift::default(),
            sharing: Some(SharingLimits::default()),
            turn_limit: None,
        };
        Self {
            key: Key::new("k").unwrap(),
            config,
            announces: false,
            engine: Engine::default(),
            backend: TestBackend::new(mode),
            mode,
            now: Moment::from_micros(1_000_000_000),
            rng: SplitMix::new(0),
            timers: BTreeMap::new(),
            tasks: Vec::new(),
            guards: Vec::new(),
            granted: 0,
            tokens: BTreeSet::new(),
            detached: Vec::new(),
            lose: (false, 0),
            odd: false,
            arrived: 0,
            given_up: BTreeSet::new(),
        }
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R) -> R {
        let mut out = Actions::new();
        let (key, config, now, rng) = (&self.key, &self.config, self.now, &mut self.rng);
        let answer = call(&mut self.engine, &mut Context { key, config, open: true, now, rng, out: &mut out });
        for action in out.drain() {
            match action {
                Action::SetTimer { hold, to, .. } => _ = self.timers.insert(hold, to),
                Action::Ended(ended) => {
                    let reads_and_loses = self.mode == Mode::Shared && matches!(ended.end, End::Lost(_));
                    assert!(ended.others.is_empty() || reads_and_loses, "the others are not notified of a loss");
                    self.timers.remove(&ended.hold);
                }
                Action::Release(release) => {
                    self.given_up.insert(release.holder.hex());
                    self.backend.release(release.holder, self.now);
                }
                _ => {}
            }
        }
        answer
    }

    /// What a request is answered, if it is.
    fn send<T>(&mut self, request: impl FnOnce(&mut TestBackend, Moment) -> T) -> Result<T, Unknown> {
        let (carried_out, left) = self.lose;
        if left == 0 {
            return Ok(request(&mut self.backend, self.now));
        }
        self.lose.1 -= 1;
        if carried_out {
            request(&mut self.backend, self.now);
        }
        Err(Unknown::new("backend", Fault::Timeout, ""))
    }

    pub(crate) fn act(&mut self, act: &Act) {
        match act {
            Act::Enter { odd } => self.enter(*odd),
            Act::Cancel(which) if !self.tasks.is_empty() => {
                let task = self.tasks.remove(which.index(self.tasks.len()));
                self.leave(task);
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
            Act::OtherComes { number, weight } => self.backend.other_comes(*number, *weight, self.now),
            Act::OtherGoes { number } => self.backend.other_goes(*number, self.now),
            Act::Forget => self.forget(),
            Act::Pass(ms) => self.pass(Duration::from_millis(*ms)),
            Act::Lose { carried_out, requests } => self.lose = (*carried_out, *requests),
            _ => {}
        }
        self.settle();
        self.check();
    }

    fn enter(&mut self, odd: bool) {
        let request = AcquireRequest {
            mode: self.mode,
            owner: Owner::new("host", 1, None).unwrap(),
            ttl: Ttl::new(Duration::from_secs(if odd { 4 } else { 3 })).unwrap(),
            wait: None,
            retry: None,
            max_hold: None,
            lease_sharing: LeaseSharing::Allowed,
            place: None,
        };
        self.odd |= odd;
        self.arrived += 1;
        let task = Task { acquire: AcquireKey::new(request, false), number: self.arrived, rests_until: Moment::NEVER };
        self.follow(task, AcquireNext::Enter);
    }

    fn leave(&mut self, mut task: Task) {
        self.call(|engine, cx| task.acquire.cancel(engine, cx));
    }

    /// Another program deletes the holds, and the client is notified.
    fn forget(&mut self) {
        self.lose = (false, 0);
        self.backend.forget(self.now);
        self.detached.clear();
        self.call(|engine, cx| engine.on_reset(Duration::ZERO, cx));
    }

    pub(crate) fn release(&mut self, which: usize) {
        let (grant, holder) = self.guards.remove(which);
        let others = self.held();
        match self.call(|engine, cx| engine.release(grant.hold, grant.tenure, false, cx)) {
            Leaving::PassedOn => {
                let reads_on = others.iter().any(|(other, _)| other.hold == grant.hold);
                assert!(self.mode != Mode::Shared || reads_on, "nobody reads on");
            }
            // The hold is another process's.
            Leaving::Over if self.detached.contains(&holder) => {}
            // As its guard does.
            Leaving::Release(_) | Leaving::Over => self.backend.release(holder, self.now),
        }
        assert_eq!(self.held().len(), others.len(), "a release ended the hold of another task");
        self.settle();
        self.check();
    }

    /// The guards that are valid.
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
            let tasks = self.tasks.iter().map(|task| task.rests_until);
            let next = self.timers.values().copied().chain(tasks).filter(|at| *at > self.now).min();
            self.now = next.unwrap_or(until).min(until);
            self.backend.expire(self.now);
            self.settle();
            self.check();
        }
    }

    /// Delivers messages, fires timers and runs tasks, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..200 {
            let handed = std::mem::take(&mut self.backend.handed);
            let mut moved = !handed.is_empty();
            if std::mem::take(&mut self.backend.announces) && self.mode != Mode::Shared {
                self.call(KeyEngine::on_queued);
                moved = true;
            }
            for (holder, tokens) in handed {
                let waits = self.call(|engine, cx| engine.on_hand_off(holder, tokens, KeyTable::CLAIM_TTL, cx));
                // It may have been granted by an answer meanwhile.
                if !waits && self.given_up.contains(&holder.hex()) {
                    self.backend.release(holder, self.now);
                }
            }
            while let Some((hold, at)) = self.first_due() {
                self.timers.remove(&hold);
                self.fire(hold, at);
                moved = true;
            }
            for task in std::mem::take(&mut self.tasks) {
                moved |= self.run(task);
            }
            if !moved {
                return;
            }
        }
        panic!("the client does not come to rest");
    }

    fn first_due(&self) -> Option<(HoldId, Moment)> {
        self.timers.iter().find(|(_, at)| **at <= self.now).map(|(hold, at)| (*hold, *at))
    }

    fn fire(&mut self, hold: HoldId, at: Moment) {
        let sent = self.now;
        let firing = Firing::alone(at, sent + Duration::from_millis(1));
        let duty = self.call(|engine, cx| engine.hold_due(hold, firing, cx));
        if let Duty::Renew(renewal) = duty {
            let (announced, answer) = (self.announces, self.send(|backend, now| backend.renew(&renewal, now)));
            self.call(|engine, cx| engine.renewal_answered(hold, sent, answer, announced, cx));
        }
    }

    /// Runs a task until it waits. Returns whether it had something to do.
    fn run(&mut self, mut task: Task) -> bool {
        let next = if task.rests_until <= self.now {
            Some(self.call(|engine, cx| task.acquire.on_time(engine, cx)))
        } else {
            self.call(|engine, cx| task.acquire.woken(engine, cx))
        };
        let runs = next.is_some();
        match next {
            Some(next) => self.follow(task, next),
            None => self.tasks.push(task),
        }
        runs
    }

    fn follow(&mut self, mut task: Task, mut next: AcquireNext) {
        loop {
            next = match next {
                AcquireNext::Enter => self.call(|engine, cx| task.acquire.enter(engine, cx)),
                AcquireNext::Rest(until) => {
                    task.rests_until = until.max(self.now + Duration::from_micros(1));
                    return self.tasks.push(task);
                }
                AcquireNext::Send(request, _) => {
                    let reply = match request {
                        KeyRequest::Claim(claim) => {
                            KeyReply::Claim(self.send(|backend, now| backend.claim(&claim, now)).into())
                        }
                        KeyRequest::Inspect => KeyReply::Inspect(Ok(None)),
                        KeyRequest::Release(holder) => {
                            self.backend.release(holder, self.now);
                            KeyReply::Release(Ok(Release::Absent))
                        }
                    };
                    self.call(|engine, cx| task.acquire.answered(reply, engine, cx))
                }
                AcquireNext::Granted(grant) => return self.begin(task.number, grant),
                AcquireNext::Failed(_) => return,
                AcquireNext::Closed => unreachable!("the client is open"),
            };
        }
    }

    fn begin(&mut self, number: u32, grant: Grant) {
        // Tasks that claim something else than those in the queue claim for themselves, and readers join others.
        let is_in_engine = |task: &Task| task.acquire.id().is_some_and(|id| self.engine.task(id).is_some());
        let waits = |other: &&Task| other.number < number && is_in_engine(other);
        let ordered = !self.odd && self.mode != Mode::Shared;
        let overtaken = self.tasks.iter().filter(|_| ordered).find(waits);
        assert!(overtaken.is_none(), "the task {number} was served before {overtaken:?}");
        // A lease that is over by now is waited for again.
        if let Some((holder, ..)) = self.engine.facts(grant.hold) {
            let unused = self.tokens.insert(grant.tenure.fence.get());
            assert!(unused || self.mode == Mode::Shared, "a token twice: {grant:?}");
            self.granted += 1;
            self.guards.push((grant, holder));
        }
    }

    fn check(&mut self) {
        let held = self.held();
        let holders: BTreeSet<_> = held.iter().map(|(_, holder)| holder.hex()).collect();
        assert!(self.mode == Mode::Shared || holders.len() == held.len(), "two tasks have one hold");
        for (grant, holder) in &held {
            assert!(self.backend.has(*holder), "a task has no hold on the backend: {grant:?}");
            assert!(!self.backend.writes(), "a task holds the key while a writer does: {grant:?}");
        }
        let keeps = self.engine.idle_holder().is_some();
        assert!(self.mode == Mode::Shared || !keeps, "permits are kept although no task has them");
        assert!(self.backend.used() <= self.mode.limit().unwrap_or(0));
    }

    /// Everybody leaves. What was given away stays.
    pub(crate) fn wind_down(&mut self) {
        self.lose = (false, 0);
        while let Some(task) = self.tasks.pop() {
            self.leave(task);
        }
        while !self.guards.is_empty() {
            self.release(0);
        }
        (0..4).for_each(|number| self.backend.other_goes(number, self.now));
        self.settle();
        assert!(self.engine.is_empty() && self.timers.is_empty(), "the engine keeps something");
        for holder in std::mem::take(&mut self.detached) {
            self.backend.release(holder, self.now);
        }
        assert!(self.backend.is_free(), "left on the backend: {:?}", self.backend);
    }
}
