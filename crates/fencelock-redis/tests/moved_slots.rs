//! Every order of waiting, subscribing, moving a slot and releasing, on a cluster of two nodes: no live waiter leaves the queue without
//! a grant. It models `advance` and `notify` in `line.lua`, and the subscriptions of `ShardChannels`.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock_search::{Explored, System, explore};
use std::fmt;

const CLIENTS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Production,
    /// A channel without a subscriber means a dead waiter, wherever it has subscribed.
    NoNode,
    /// The client does not subscribe to the channel that belongs to no slot.
    NoPresence,
    /// `PUBLISH` of one node counts its own subscribers, and clients subscribe at any node.
    OneChannel,
    /// A waiter is notified of its channel before it has subscribed.
    EntryFirst,
}

#[derive(Debug, Clone, Copy)]
struct Setting {
    rule: Rule,
    moves: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Act {
    Enqueue(usize),
    Subscribe(usize),
    /// Writes the channel into the entry.
    Poll(usize),
    Crash(usize),
    /// Or a failover: the queue is at the other node, the subscriptions are not.
    Move,
    Release,
}

/// A client in the queue, and the node of the channel in its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    client: usize,
    channel: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct World {
    /// The node that serves the slot.
    owner: u8,
    moves: u8,
    queue: Vec<Entry>,
    /// At each node, by client.
    subscribed: [[bool; CLIENTS]; 2],
    /// The same for the channel that belongs to no slot.
    present: [[bool; CLIENTS]; 2],
    crashed: [bool; CLIENTS],
    /// Was in the queue and was granted the lock, in this order.
    granted: Vec<usize>,
    /// A live client left the queue without a grant.
    is_broken: bool,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl World {
    const GRANTED_AFTER_A_MOVE: u32 = 1;
    const PASSED_OVER_THE_DEAD: u32 = 2;
    const MOVED_TWICE: u32 = 4;

    fn waits(&self, client: usize) -> bool {
        self.queue.iter().any(|entry| entry.client == client)
    }

    /// What the client would write into its entry.
    fn channel(&self, client: usize, rule: Rule) -> Option<u8> {
        let here = usize::from(self.owner);
        match rule {
            Rule::EntryFirst => Some(self.owner),
            // Each client has a connection to one node.
            Rule::OneChannel => Some(u8::try_from(client % 2).unwrap()),
            _ => self.subscribed[here][client].then_some(self.owner),
        }
    }

    /// Whether `notify` finds no subscriber.
    fn counts_as_dead(&self, entry: Entry, rule: Rule) -> bool {
        let here = usize::from(self.owner);
        match (entry.channel, rule) {
            (None, _) => false,
            (Some(node), Rule::OneChannel) => self.crashed[entry.client] || node != self.owner,
            (Some(node), Rule::Production | Rule::NoPresence | Rule::EntryFirst) if node != self.owner => false,
            (Some(_), Rule::NoNode | Rule::NoPresence) => !self.subscribed[here][entry.client],
            (Some(_), _) => !self.subscribed[here][entry.client] && !self.present[here][entry.client],
        }
    }

    fn release(&mut self, rule: Rule) -> u32 {
        let mut landmarks = 0;
        while !self.queue.is_empty() {
            let entry = self.queue.remove(0);
            if self.counts_as_dead(entry, rule) {
                self.is_broken |= !self.crashed[entry.client];
                landmarks |= Self::PASSED_OVER_THE_DEAD;
                continue;
            }
            self.granted.push(entry.client);
            if entry.channel.is_some_and(|node| node != self.owner) {
                landmarks |= Self::GRANTED_AFTER_A_MOVE;
            }
            break;
        }
        landmarks
    }
}

impl System for Setting {
    type State = World;
    type Action = Act;

    fn initial(&self) -> World {
        World::default()
    }

    fn actions(&self, world: &World, into: &mut Vec<Act>) {
        for client in (0..CLIENTS).filter(|client| !world.crashed[*client]) {
            if world.waits(client) {
                into.extend([Act::Subscribe(client), Act::Poll(client), Act::Crash(client)]);
            } else if !world.granted.contains(&client) {
                into.push(Act::Enqueue(client));
            }
        }
        if world.moves < self.moves {
            into.push(Act::Move);
        }
        if !world.queue.is_empty() {
            into.push(Act::Release);
        }
    }

    fn step(&self, world: &World, act: Act) -> (World, u32) {
        let mut next = world.clone();
        let mut landmarks = 0;
        match act {
            Act::Enqueue(client) => {
                let channel = world.channel(client, self.rule);
                next.queue.push(Entry { client, channel });
            }
            Act::Subscribe(client) => {
                next.subscribed[usize::from(world.owner)][client] = true;
                next.present[usize::from(world.owner)][client] = true;
            }
            Act::Poll(client) => {
                let channel = world.channel(client, self.rule);
                next.queue.iter_mut().filter(|entry| entry.client == client).for_each(|entry| entry.channel = channel);
            }
            Act::Crash(client) => {
                next.crashed[client] = true;
                next.subscribed.iter_mut().chain(&mut next.present).for_each(|node| node[client] = false);
            }
            Act::Move => {
                next.subscribed[usize::from(world.owner)] = [false; CLIENTS];
                next.owner = 1 - world.owner;
                next.moves += 1;
                landmarks |= if next.moves == 2 { World::MOVED_TWICE } else { 0 };
            }
            Act::Release => landmarks |= next.release(self.rule),
        }
        (next, landmarks)
    }
}

fn search(setting: Setting) -> Explored<Act, World> {
    let found = explore(&setting, 5_000_000, |world: &World| world.is_broken);
    println!("{setting:?}: {} states, {} steps deep", found.states, found.depth);
    found
}

fn holds(setting: Setting, landmarks: u32) {
    let found = search(setting);
    for (act, world) in found.trace.iter().flatten() {
        println!("{act:?}\n    {world}");
    }
    assert!(found.trace.is_none(), "{setting:?}");
    assert_eq!(found.landmarks & landmarks, landmarks, "{setting:?}");
}

#[track_caller]
fn is_found(setting: Setting, steps: usize) {
    assert_eq!(search(setting).trace.map(|way| way.len()), Some(steps), "{setting:?}");
}

#[test]
fn no_live_waiter_leaves_the_queue_when_its_slot_is_moved() {
    holds(Setting { rule: Rule::Production, moves: 1 }, World::GRANTED_AFTER_A_MOVE | World::PASSED_OVER_THE_DEAD);
}

#[test]
fn no_live_waiter_leaves_the_queue_when_its_slot_returns() {
    let landmarks = World::GRANTED_AFTER_A_MOVE | World::PASSED_OVER_THE_DEAD | World::MOVED_TWICE;
    holds(Setting { rule: Rule::Production, moves: 3 }, landmarks);
}

/// The entry names the node to which the slot has returned, and the subscription there has ended.
#[test]
fn without_a_second_channel_a_slot_that_returns_drops_the_waiter() {
    holds(Setting { rule: Rule::NoPresence, moves: 1 }, World::GRANTED_AFTER_A_MOVE);
    is_found(Setting { rule: Rule::NoPresence, moves: 2 }, 6);
}

#[test]
fn without_the_node_in_the_channel_a_move_drops_the_waiter() {
    is_found(Setting { rule: Rule::NoNode, moves: 1 }, 5);
}

#[test]
fn one_node_does_not_count_the_subscribers_of_the_others() {
    is_found(Setting { rule: Rule::OneChannel, moves: 0 }, 2);
}

#[test]
fn an_entry_must_not_name_a_channel_before_the_subscription() {
    is_found(Setting { rule: Rule::EntryFirst, moves: 0 }, 2);
}
