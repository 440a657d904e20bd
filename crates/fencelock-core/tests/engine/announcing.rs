//! Leases that a client has for tasks of other modes end for a claim of its own that waits at the backend, so the engine reports each
//! such claim once.

use fencelock_core::engine::{
    AcquireRequest, Action, Actions, Config, Context, KeyEngine, LeaseSharing, Rng, SharingLimits, TaskStep, WaiterId,
};
use fencelock_core::{
    Acquire, Capabilities, Claim, Drift, Expiry, Fault, Foreign, HandOffBounds, HolderId, Intent, Invalid, Key, Mode,
    Moment, Occupant, Occupied, Owner, Ttl, Unknown,
};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Client {
    engine: KeyEngine<(), ()>,
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
    fn call<R>(&mut self, call: impl FnOnce(&mut KeyEngine<(), ()>, &mut Context<'_, (), ()>) -> R) -> R {
        self.micros += 1_000_000;
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.queues) = (true, true);
        let sharing = Some(SharingLimits::default());
        let config =
            Config { backend: "test".to_owned(), capabilities, drift: Drift::default(), sharing, turn_limit: None };
        let (key, mut out, now) = (Key::new("k").unwrap(), Actions::new(), Moment::from_micros(self.micros));
        let (config, rng) = (&config, &mut Holders(&mut self.holders));
        let answer = call(&mut self.engine, &mut Context { key: &key, config, open: true, now, rng, out: &mut out });
        self.announced += out.drain().filter(|action| matches!(action, Action::Queued)).count();
        answer
    }

    pub(crate) fn enter(&mut self) -> WaiterId {
        self.enter_for(None)
    }

    pub(crate) fn enter_for(&mut self, wait: Option<Duration>) -> WaiterId {
        let request = AcquireRequest {
            mode: Mode::Exclusive,
            owner: Owner::from_text("task"),
            ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
            wait,
            retry: None,
            max_hold: None,
            lease_sharing: LeaseSharing::Allowed,
            place: None,
        };
        self.call(|engine, cx| engine.enter(request, cx.now, false, cx))
    }

    /// The task sends its next claim.
    pub(crate) fn claims(&mut self, id: WaiterId) -> Claim {
        let polled = self.call(|engine, cx| engine.poll(id, cx));
        let step = match polled {
            Some(TaskStep::Claim(claim)) => TaskStep::Claim(claim),
            _ => self.call(|engine, cx| engine.timer_fired(id, cx)),
        };
        let TaskStep::Claim(claim) = step else { panic!("{step:?}") };
        *claim
    }

    pub(crate) fn answered(&mut self, id: WaiterId, answer: Result<Acquire, Unknown>) -> TaskStep {
        self.call(|engine, cx| engine.claim_answered(id, cx.now, answer.into(), cx))
    }
}

pub(crate) fn queued() -> Acquire {
    let occupied = Occupied::new(Occupant::Foreign(Foreign::string("")), Expiry::Never);
    Acquire::Queued { ahead: 0, occupied, hand_off: HandOffBounds::new(0, None) }
}

#[test]
fn a_claim_in_the_queue_is_reported_once() {
    let mut client = Client::default();
    let task = client.enter();
    assert_eq!(client.claims(task).queueing.intent, Intent::Enqueue);
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
    client.call(|engine, cx| engine.leave(first, cx));
    let taken_over = client.claims(second);
    assert_eq!((taken_over.queueing.intent, taken_over.holder.id), (Intent::Poll, sent.holder.id));
    client.answered(second, Ok(queued()));
    assert_eq!(client.announced, 1);
}

#[test]
fn a_claim_whose_first_reply_was_lost_is_reported() {
    let mut client = Client::default();
    let task = client.enter();
    client.claims(task);
    client.answered(task, Err(Unknown::new("test", Fault::Timeout, "no reply")));
    assert_eq!(client.claims(task).queueing.intent, Intent::Poll);
    client.answered(task, Ok(queued()));
    assert_eq!(client.announced, 1);
}
