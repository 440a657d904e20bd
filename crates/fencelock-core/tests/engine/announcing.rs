//! Leases that a client has for tasks of other modes end for a claim of its own that waits at the backend, so the engine reports each
//! such claim once.

use fencelock_core::engine::{
    AcquireRequest, Action, Actions, Config, Env, FailureReason, KeyEngine, KeyRequest, Rng, SharingLimits, TaskStep,
    WaiterId,
};
use fencelock_core::{
    Acquire, Capabilities, Claim, ClaimReply, Drift, Expiry, Fault, Foreign, HandOffBounds, HolderId, Intent, Invalid,
    Key, Moment, Occupant, Occupied, Ttl, Unknown,
};
use std::time::Duration;

type Engine = KeyEngine<(), ()>;
type Cx<'a> = Env<'a, (), ()>;

#[derive(Default)]
pub(crate) struct Client {
    engine: Engine,
    /// Each task, and what it does next.
    tasks: Vec<(WaiterId, TaskStep)>,
    micros: u64,
    holders: u8,
    /// How often the engine has reported a claim in the queue.
    announced: usize,
}

struct Holders<'a>(&'a mut u8);

impl Rng for Holders<'_> {
    fn next_u64(&mut self) -> u64 {
        0
    }

    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        *self.0 += 1;
        Ok(HolderId::from_bytes([*self.0; 16]))
    }
}

impl Client {
    /// A second later.
    fn call<R>(&mut self, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R) -> R {
        self.micros += 1_000_000;
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.queues) = (true, true);
        let sharing = Some(SharingLimits::default());
        let config =
            Config { backend: "test".to_owned(), capabilities, drift: Drift::default(), sharing, turn_limit: None };
        let (key, mut out, now) = (Key::new("k").unwrap(), Actions::new(), Moment::from_micros(self.micros));
        let (config, rng) = (&config, &mut Holders(&mut self.holders));
        let answer = call(&mut self.engine, &mut Env { key: &key, config, open: true, now, rng, out: &mut out });
        self.announced += out.drain(..).filter(|action| matches!(action, Action::Queued)).count();
        answer
    }

    pub(crate) fn enter(&mut self) -> usize {
        self.enter_for(None)
    }

    pub(crate) fn enter_for(&mut self, wait: Option<Duration>) -> usize {
        let request =
            AcquireRequest { ttl: Ttl::new(Duration::from_secs(30)).unwrap(), wait, ..AcquireRequest::default() };
        let task = self.call(|engine, cx| engine.enter(&request, cx));
        self.tasks.push(task);
        self.tasks.len() - 1
    }

    fn run(&mut self, task: usize, call: impl FnOnce(&mut Engine, WaiterId, &mut Cx<'_>) -> TaskStep) {
        let id = self.tasks[task].0;
        self.tasks[task].1 = self.call(|engine, cx| call(engine, id, cx));
    }

    /// The task sends its next claim.
    pub(crate) fn claims(&mut self, task: usize) -> Claim {
        if matches!(self.tasks[task].1, TaskStep::Rest(_)) {
            self.run(task, Engine::on_time);
        }
        let TaskStep::Send(KeyRequest::Claim(claim), _) = &self.tasks[task].1 else {
            panic!("{:?}", self.tasks[task].1)
        };
        Claim::clone(claim)
    }

    pub(crate) fn answered(&mut self, task: usize, answer: Result<Acquire, Unknown>) {
        self.run(task, |engine, id, cx| engine.answered(id, ClaimReply::from(answer).into(), cx));
    }

    /// From now on, the task has no reply.
    pub(crate) fn is_refused(&mut self, task: usize) -> FailureReason {
        loop {
            if let Some(reason) = self.goes_on(task) {
                return reason;
            }
        }
    }

    /// The task wakes up, or its request has no reply. Returns why it has failed.
    pub(crate) fn goes_on(&mut self, task: usize) -> Option<FailureReason> {
        match &self.tasks[task].1 {
            TaskStep::Send(..) => self.run(task, |engine, id, cx| engine.answered(id, no_reply().into(), cx)),
            TaskStep::Rest(_) => self.run(task, Engine::on_time),
            TaskStep::Failed(failure) => return Some(failure.reason.clone()),
            next => panic!("{next:?}"),
        }
        None
    }

    /// Until when its request may be answered.
    pub(crate) fn limit(&self, task: usize) -> Option<u64> {
        let TaskStep::Send(_, limit) = &self.tasks[task].1 else { return None };
        Some(limit.as_micros() / 1_000_000)
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.micros / 1_000_000
    }

    fn gives_up(&mut self, task: usize) {
        self.run(task, |engine, id, cx| {
            engine.leave(id, cx);
            TaskStep::Closed
        });
    }
}

pub(crate) fn no_reply() -> Unknown {
    Unknown::new("test", Fault::Timeout, "no reply")
}

pub(crate) fn queued() -> Acquire {
    let occupied = Occupied::new(Occupant::Foreign(Foreign::string("")), Expiry::Never);
    Acquire::Queued { ahead: 0, occupied, hand_off: HandOffBounds::new(0, None) }
}

#[test]
fn a_claim_in_the_queue_is_reported_once() {
    let mut client = Client::default();
    let task = client.enter();
    assert_eq!(client.claims(task).intent, Intent::Enqueue);
    client.answered(task, Ok(queued()));
    assert_eq!(client.announced, 1);
    client.claims(task);
    client.answered(task, Ok(queued()));
    assert_eq!(client.announced, 1);
}

#[test]
fn a_claim_that_was_taken_over_before_its_reply_is_reported() {
    let mut client = Client::default();
    let (first, second) = (client.enter(), client.enter());
    let sent = client.claims(first);
    client.gives_up(first);
    let taken_over = client.claims(second);
    assert_eq!((taken_over.intent, taken_over.holder.id), (Intent::Poll, sent.holder.id));
    client.answered(second, Ok(queued()));
    assert_eq!(client.announced, 1);
}

#[test]
fn a_claim_whose_first_reply_was_lost_is_reported() {
    let mut client = Client::default();
    let task = client.enter();
    client.claims(task);
    client.answered(task, Err(no_reply()));
    assert_eq!(client.claims(task).intent, Intent::Poll);
    client.answered(task, Ok(queued()));
    assert_eq!(client.announced, 1);
}
