//! Every order in which clients can try slots, wait in queues, be granted and give up: no client keeps two slots, none leaves a
//! slot or a position in a queue behind, and none waits forever although a slot is free. Each rule of
//! [`fencelock_core::engine::AcquireSlot`] is dropped once, and the search finds the shortest way to the damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock_core::Moment;
use fencelock_core::engine::{AcquireSlot, ClaimFailure, SlotStep};
use fencelock_search::{System, explore};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Production,
    /// A second grant is kept.
    KeepsSecondGrant,
    /// The slots without a queue are not tried again.
    NeverTriesAgain,
    /// The queues are not left when a slot is granted.
    StaysInQueues,
    /// A try without an answer ends the wait.
    EndsWithSilence,
}

#[derive(Debug, Clone, Copy)]
struct Setting {
    rule: Rule,
    slots: usize,
    clients: usize,
    queues: u32,
    /// Whether the waits may end.
    bounded: bool,
    /// The first client never releases its slot.
    one_stays: bool,
    /// Whether tries may be lost.
    loses: bool,
}

const SETTING: Setting =
    Setting { rule: Rule::Production, slots: 3, clients: 3, queues: 2, bounded: false, one_stays: false, loses: false };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// The client tries a slot.
    Try(usize, usize),
    /// Its try of a slot is lost.
    Lose(usize, usize),
    /// It receives the grant of a waiting claim for this slot.
    Receive(usize, usize),
    TimeOut(usize),
    /// It releases its slot after its work.
    Leave(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    machine: AcquireSlot<()>,
    inside: Option<usize>,
    over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    /// The holder of each slot, then those who wait for it.
    queues: Vec<Vec<usize>>,
    clients: Vec<Client>,
    broken: Option<&'static str>,
}

/// Passes of tries begin here, and the next one is always due: any time may pass between two steps.
const BEGIN: Moment = Moment::from_micros(0);
const LATER: Moment = Moment::from_micros(10_000_000);
/// After the end of each wait.
const OVER: Moment = Moment::from_micros(200_000_000);

impl World {
    fn new(setting: &Setting) -> Self {
        let wait = setting.bounded.then_some(Duration::from_secs(100));
        let client = |number: usize| {
            let slots = u32::try_from(setting.slots).unwrap();
            let machine = AcquireSlot::new(slots, u32::try_from(number).unwrap(), wait, BEGIN);
            let machine = machine.unwrap().with_queues(setting.queues);
            Client { machine, inside: None, over: false }
        };
        let clients = (0..setting.clients).map(client).collect();
        Self { queues: vec![Vec::new(); setting.slots], clients, broken: None }
    }

    fn acts(&self, setting: &Setting) -> Vec<Act> {
        let mut acts = Vec::new();
        for (who, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.over) {
            if client.inside.is_some() {
                if !(setting.one_stays && who == 0) {
                    acts.push(Act::Leave(who));
                }
                continue;
            }
            let is_queued = client.machine.is_queued();
            let tries = !(setting.rule == Rule::NeverTriesAgain && is_queued);
            if let (SlotStep::Try(slot), true) = (client.machine.clone().step(LATER), tries) {
                acts.push(Act::Try(who, slot as usize));
                acts.extend(setting.loses.then_some(Act::Lose(who, slot as usize)));
            }
            let granted = (0..self.queues.len()).filter(|slot| is_queued && self.queues[*slot].first() == Some(&who));
            acts.extend(granted.map(|slot| Act::Receive(who, slot)));
            if setting.bounded && is_queued {
                acts.push(Act::TimeOut(who));
            }
        }
        acts
    }

    fn act(&mut self, act: Act, setting: &Setting) -> Result<(), &'static str> {
        match act {
            Act::Try(who, slot) if self.queues[slot].is_empty() => {
                self.begin(who);
                self.queues[slot].push(who);
                self.granted(who, slot, setting);
            }
            Act::Try(who, slot) => self.fail(who, slot, ClaimFailure::Busy),
            Act::Lose(who, slot) if setting.rule == Rule::EndsWithSilence => {
                self.fail(who, slot, ClaimFailure::Refused);
            }
            Act::Lose(who, slot) => self.fail(who, slot, ClaimFailure::Silent),
            Act::Receive(who, slot) => self.granted(who, slot, setting),
            Act::TimeOut(who) => {
                self.clients[who].machine.on_time(OVER);
                self.give_up(who, None);
                self.clients[who].over = true;
            }
            Act::Leave(who) => {
                let slot = self.clients[who].inside.take().ok_or("it holds nothing")?;
                self.queues[slot].retain(|other| *other != who);
                self.clients[who].over = true;
            }
        }
        for who in 0..self.clients.len() {
            self.join_queues(who);
        }
        self.check()
    }

    /// The client begins its next try.
    fn begin(&mut self, who: usize) {
        let step = self.clients[who].machine.step(LATER);
        assert!(matches!(step, SlotStep::Try(_)), "{step:?}");
    }

    fn fail(&mut self, who: usize, slot: usize, failure: ClaimFailure) {
        self.begin(who);
        self.clients[who].machine.on_failed(u32::try_from(slot).unwrap(), failure, (), BEGIN);
    }

    fn granted(&mut self, who: usize, slot: usize, setting: &Setting) {
        let keeps = self.clients[who].machine.on_granted(u32::try_from(slot).unwrap());
        if !keeps {
            return;
        }
        self.clients[who].inside = Some(slot);
        match setting.rule {
            Rule::StaysInQueues => {}
            Rule::KeepsSecondGrant => {
                let second = |queue: &Vec<usize>| queue.first() == Some(&who);
                for queue in self.queues.iter_mut().filter(|queue| !second(queue)) {
                    queue.retain(|other| *other != who);
                }
            }
            _ => self.give_up(who, Some(slot)),
        }
    }

    /// Leaves the queues, and releases what was granted.
    fn give_up(&mut self, who: usize, except: Option<usize>) {
        for (_, queue) in self.queues.iter_mut().enumerate().filter(|(slot, _)| Some(*slot) != except) {
            queue.retain(|other| *other != who);
        }
    }

    fn join_queues(&mut self, who: usize) {
        let client = &mut self.clients[who];
        while let (false, SlotStep::Queue { slot, .. }) = (client.over, client.machine.clone().step(LATER)) {
            client.machine.step(LATER);
            self.queues[slot as usize].push(who);
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        for (who, client) in self.clients.iter().enumerate() {
            let at = |slot: &usize| self.queues[*slot].contains(&who);
            let positions = (0..self.queues.len()).filter(at).count();
            if client.over && positions > 0 {
                return Err("a client that has ended leaves a slot or a position behind");
            }
            if client.inside.is_some() && positions > 1 {
                return Err("a client keeps more than its slot");
            }
        }
        Ok(())
    }

    fn is_over(&self, setting: &Setting) -> bool {
        let mut clients = self.clients.iter().enumerate();
        clients.all(|(who, client)| client.over || (setting.one_stays && who == 0 && client.inside.is_some()))
    }
}

impl System for Setting {
    type State = World;
    type Action = Act;

    fn initial(&self) -> World {
        World::new(self)
    }

    fn actions(&self, world: &World, into: &mut Vec<Act>) {
        into.extend(world.acts(self));
    }

    fn step(&self, world: &World, act: Act) -> (World, u32) {
        let mut after = world.clone();
        after.broken = after.act(act, self).err();
        (after, 0)
    }
}

impl Setting {
    fn damage(&self, world: &World) -> Option<&'static str> {
        let stands_still = || world.acts(self).into_iter().all(|act| self.step(world, act).0 == *world);
        world.broken.or_else(|| (!world.is_over(self) && stands_still()).then_some("a client waits forever"))
    }
}

/// What is broken, and in how many steps.
fn search(setting: &Setting) -> (usize, Option<(&'static str, usize)>) {
    let found = explore(setting, 1_000_000, |world| setting.damage(world).is_some());
    let damage = found.trace.map(|way| {
        let (_, world) = way.last().expect("the first state is whole");
        (setting.damage(world).expect("it was sought"), way.len())
    });
    (found.states, damage)
}

#[test]
fn every_client_gets_one_slot_and_leaves_nothing() {
    for (slots, clients, queues) in [(1, 3, 1), (2, 4, 2), (3, 4, 2), (3, 3, 1)] {
        for (bounded, one_stays, loses) in
            [(false, false, false), (true, false, false), (false, slots > 1, false), (false, false, true)]
        {
            let setting = Setting { slots, clients, queues, bounded, one_stays, loses, ..SETTING };
            let (states, broken) = search(&setting);
            println!("{setting:?}: {states} states");
            assert_eq!(broken, None, "{setting:?}");
            assert!(states > 15, "{states}");
        }
    }
}

#[track_caller]
fn is_found(setting: Setting, what: &str, steps: usize) {
    let found = search(&setting).1;
    println!("{:?}: {found:?}", setting.rule);
    assert_eq!(found, Some((what, steps)), "{:?}", setting.rule);
    assert_eq!(search(&Setting { rule: Rule::Production, ..setting }).1, None, "the rule prevents it");
}

#[test]
fn a_second_grant_that_is_kept_is_found() {
    is_found(
        Setting { rule: Rule::KeepsSecondGrant, slots: 2, clients: 3, ..SETTING },
        "a client keeps more than its slot",
        7,
    );
}

#[test]
fn a_client_that_stays_in_its_queues_is_found() {
    is_found(Setting { rule: Rule::StaysInQueues, slots: 2, ..SETTING }, "a client keeps more than its slot", 6);
}

/// One client never leaves. The others wait for its slot or find the other one.
#[test]
fn a_client_that_waits_although_a_slot_is_free_is_found() {
    let setting = Setting { rule: Rule::NeverTriesAgain, slots: 2, queues: 1, one_stays: true, ..SETTING };
    is_found(setting, "a client waits forever", 5);
}

#[test]
fn a_wait_that_ends_with_a_try_without_an_answer_is_found() {
    let setting = Setting { rule: Rule::EndsWithSilence, clients: 1, loses: true, ..SETTING };
    is_found(setting, "a client waits forever", 1);
}
