//! Every order in which holders of a key are granted, lose it, and use its data, also late: the gate with two numbers refuses no
//! valid holder, and admits no holder after a later one that conflicts with it. Simpler gates fail, in the fewest steps.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock_core::{FenceGate, FencingToken};
use fencelock_search::{System, explore};

/// How a holder uses the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mode {
    Write,
    Read,
    /// One of two permits, which conflicts with no other one at the same time, and with every earlier one that has lost its own.
    Permit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    /// Production's: the greatest writer and the greatest reader.
    TwoNumbers,
    /// The greatest token of all.
    OneNumber,
    /// Readers are checked against the greatest writer, and leave no trace.
    ReadersLeaveNoTrace,
    /// The token must be one of the two greatest.
    AmongTheGreatest,
    /// One number for each slot; a permit has the first slot that is free.
    OneForEachSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Grant(usize),
    /// The holder loses the key, and does not know.
    Lose(usize),
    Use(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holder {
    mode: Mode,
    token: u64,
    holds: bool,
    slot: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    modes: Vec<Mode>,
    /// In the order of their tokens.
    holders: Vec<Holder>,
    gate: FenceGate,
    slots: [FenceGate; 2],
    greatest: Vec<u64>,
    /// The tokens that were admitted, with the holders who may not come after them.
    used: Vec<usize>,
    broken: Option<&'static str>,
}

const PERMITS: usize = 2;

impl World {
    fn may_be_granted(&self, mode: Mode) -> bool {
        let mut others = self.holders.iter().filter(|holder| holder.holds);
        match mode {
            Mode::Write => others.next().is_none(),
            Mode::Read => others.all(|other| other.mode == Mode::Read),
            Mode::Permit => others.count() < PERMITS,
        }
    }

    fn acts(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        let next = self.holders.len();
        if self.modes.get(next).is_some_and(|mode| self.may_be_granted(*mode)) {
            acts.push(Act::Grant(next));
        }
        for (number, holder) in self.holders.iter().enumerate() {
            acts.push(Act::Use(number));
            if holder.holds {
                acts.push(Act::Lose(number));
            }
        }
        acts
    }

    fn act(&mut self, act: Act, rule: Rule) -> Result<(), &'static str> {
        match act {
            Act::Grant(number) => {
                let in_use = |slot: &usize| self.holders.iter().any(|holder| holder.holds && holder.slot == *slot);
                let slot = (0..PERMITS).find(|slot| !in_use(slot)).unwrap_or(0);
                let token = self.holders.len() as u64 + 1;
                self.holders.push(Holder { mode: self.modes[number], token, holds: true, slot });
                Ok(())
            }
            Act::Lose(number) => {
                self.holders[number].holds = false;
                Ok(())
            }
            Act::Use(number) => self.use_data(number, rule),
        }
    }

    fn use_data(&mut self, number: usize, rule: Rule) -> Result<(), &'static str> {
        let holder = self.holders[number].clone();
        let admitted = self.admits(&holder, rule);
        if !admitted {
            return if holder.holds { Err(REFUSED) } else { Ok(()) };
        }
        let replaced = |later: &usize| *later > number && self.conflicts(number, *later);
        if self.used.iter().any(replaced) {
            return Err(LATE);
        }
        if !self.used.contains(&number) {
            self.used.push(number);
            self.used.sort_unstable();
        }
        Ok(())
    }

    /// Whether the earlier holder has nothing to do there after the later one.
    fn conflicts(&self, earlier: usize, later: usize) -> bool {
        let (one, other) = (&self.holders[earlier], &self.holders[later]);
        match (one.mode, other.mode) {
            (Mode::Read, Mode::Read) => false,
            // The later one has the place of the earlier one.
            (Mode::Permit, Mode::Permit) => !one.holds && one.slot == other.slot,
            _ => true,
        }
    }

    fn admits(&mut self, holder: &Holder, rule: Rule) -> bool {
        let token = FencingToken::new(holder.token).unwrap();
        match (rule, holder.mode) {
            (Rule::TwoNumbers, Mode::Read) => self.gate.admit_read(token).is_ok(),
            (Rule::ReadersLeaveNoTrace, Mode::Read) => self.gate.clone().admit_read(token).is_ok(),
            (Rule::OneForEachSlot, _) => self.slots[holder.slot].admit_write(token).is_ok(),
            (Rule::AmongTheGreatest, _) => {
                self.greatest.push(holder.token);
                self.greatest.sort_unstable();
                self.greatest.dedup();
                let many = self.greatest.len().saturating_sub(PERMITS);
                self.greatest.drain(..many);
                self.greatest.contains(&holder.token)
            }
            _ => self.gate.admit_write(token).is_ok(),
        }
    }
}

const REFUSED: &str = "a valid holder is refused";
const LATE: &str = "a late holder is admitted";
const ANY: [&str; 2] = [REFUSED, LATE];

/// Holders in an order of their modes. Only what is sought counts as broken.
struct Setting<'a> {
    rule: Rule,
    modes: &'a [Mode],
    sought: &'a [&'static str],
}

impl System for Setting<'_> {
    type State = World;
    type Action = Act;

    fn initial(&self) -> World {
        World {
            modes: self.modes.to_vec(),
            holders: Vec::new(),
            gate: FenceGate::default(),
            slots: [FenceGate::default(); PERMITS],
            greatest: Vec::new(),
            used: Vec::new(),
            broken: None,
        }
    }

    fn actions(&self, world: &World, into: &mut Vec<Act>) {
        into.extend(world.acts());
    }

    fn step(&self, world: &World, act: Act) -> (World, u32) {
        let mut after = world.clone();
        after.broken = after.act(act, self.rule).err().filter(|broken| self.sought.contains(broken));
        (after, 0)
    }
}

/// The number of states, and the shortest way to damage.
fn search(rule: Rule, modes: &[Mode], sought: &[&'static str]) -> (usize, Option<(&'static str, Vec<Act>)>) {
    let found = explore(&Setting { rule, modes, sought }, 1_000_000, |world| world.broken.is_some());
    let damage = found.trace.map(|way| {
        let broken = way.last().and_then(|(_, world)| world.broken).expect("it was sought");
        (broken, way.into_iter().map(|(act, _)| act).collect())
    });
    (found.states, damage)
}

fn every_order(of: &[Mode], many: usize) -> Vec<Vec<Mode>> {
    (0..many).fold(vec![Vec::new()], |orders, _| {
        orders.iter().flat_map(|order| of.iter().map(move |mode| [order.as_slice(), &[*mode]].concat())).collect()
    })
}

/// The first damage among all orders of so many holders.
fn shortest(rule: Rule, of: &[Mode], sought: &[&'static str]) -> (&'static str, usize) {
    let found = every_order(of, 4).into_iter().filter_map(|modes| search(rule, &modes, sought).1);
    let (broken, way) = found.min_by_key(|(_, way)| way.len()).expect("it fails");
    println!("{rule:?}: {broken}: {way:?}");
    (broken, way.len())
}

const EXCLUSIVE: [Mode; 2] = [Mode::Write, Mode::Read];

#[test]
fn two_numbers_refuse_no_valid_holder_and_admit_no_late_one() {
    let found = every_order(&EXCLUSIVE, 4).into_iter().map(|modes| (search(Rule::TwoNumbers, &modes, &ANY), modes));
    let states: usize = found
        .map(|((states, broken), modes)| {
            assert_eq!(broken, None, "{modes:?}");
            states
        })
        .sum();
    assert!(states > 2000, "{states}");
}

#[test]
fn one_number_refuses_a_valid_reader_in_four_steps() {
    assert_eq!(shortest(Rule::OneNumber, &EXCLUSIVE, &ANY), (REFUSED, 4));
}

#[test]
fn readers_without_a_trace_admit_a_late_writer_in_five_steps() {
    assert_eq!(shortest(Rule::ReadersLeaveNoTrace, &EXCLUSIVE, &ANY), (LATE, 5));
}

#[test]
fn no_number_protects_permits_without_slots() {
    assert_eq!(shortest(Rule::OneNumber, &[Mode::Permit], &ANY), (REFUSED, 4));
    // The place of an earlier holder was taken.
    assert_eq!(shortest(Rule::AmongTheGreatest, &[Mode::Permit], &[LATE]), (LATE, 5));
    assert_eq!(shortest(Rule::AmongTheGreatest, &[Mode::Permit], &[REFUSED]), (REFUSED, 7));
}

#[test]
fn a_number_for_each_slot_protects_it() {
    let (states, broken) = search(Rule::OneForEachSlot, &[Mode::Permit; 5], &ANY);
    assert!(broken.is_none() && states > 2000, "{states} {broken:?}");
}
