//! What the one server with a queue tells its clients, and what it does not have to be asked for.

use super::Mutant;
use super::client::{Client, Timer, number_of};
use super::coverage::Coverage;
use super::world::{Event, World, holder_name};
use crate::history::{HistoryLine, Op};
use crate::rng_ext::RngExt as _;
use fencelock_core::engine::{KeyEngine, Sender};
use fencelock_core::{FencingToken, HolderId, TokenBlock};
use fencelock_model::{Channel, Delivery, HandOff, Name};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

/// A message of the server: an event of a backend.
#[derive(Debug, Clone)]
pub(super) enum Message {
    Handed(HandOff),
    Changed,
    Queued,
    Reset,
}

/// After this time without faults, a client knows what it was told: a message takes a renewal, which takes 4 ms at most.
const LEARNS_US: u64 = 20_000;
/// A message so soon after another one about the same hold waits for the next renewal.
const HINT_SPACING_US: u64 = 250_000;
/// This long after the last fault, no request of before is in flight.
const SETTLED_US: u64 = 1_000_000;

/// The channel of an incarnation of a client.
pub(super) fn channel(client: usize, life: u32) -> Channel {
    Channel(life << 8 | u32::try_from(client).unwrap_or(0))
}

/// Delivers a grant, if the client that waits for it has not crashed.
pub(super) fn deliver(clients: &[Client], grants: &mut Vec<HandOff>, grant: HandOff) -> Delivery {
    let Channel(to) = grant.channel;
    if clients[(to & 0xff) as usize].life != to >> 8 {
        return Delivery::NoSubscriber;
    }
    grants.push(grant);
    Delivery::Received
}

/// The `count` tokens that end with `fence`.
pub(super) fn tokens(fence: u64, count: u64) -> Option<TokenBlock> {
    let count = NonZeroU32::new(u32::try_from(count).ok()?)?;
    Some(TokenBlock::ending(FencingToken::new(fence).ok()?, count))
}

fn tell(world: &mut World<'_>, client: usize, life: u32, message: &Message) {
    for late in [0, 250_000] {
        if late == 0 && world.happens(world.scenario.loss_ppm) || late > 0 && !world.happens(world.scenario.twice_ppm) {
            continue;
        }
        let at = world.now + world.latency() + world.rng.upto(late);
        world.queue.put(at, Event::Message { client, life, message: Box::new(message.clone()) });
    }
}

/// Sends grants to waiters, and tells the clients that track a key of its first change since `before` by another client.
pub(super) fn announce(
    world: &mut World<'_>,
    key: usize,
    before: (Option<u128>, usize),
    by: Option<usize>,
    grants: Vec<HandOff>,
) {
    if !world.shares.queues() {
        return;
    }
    let after = world.nodes[0].state(key);
    let (changed, clients) = ([before.0 != after.0, before.1 != after.1], &world.clients);
    let is_told = |(what, client, _): &(usize, usize, u32)| changed[*what] && clients[*client].key == key;
    let tracking = std::mem::take(&mut world.nodes[0].tracking);
    let (told, others): (BTreeSet<_>, _) = tracking.into_iter().partition(is_told);
    world.nodes[0].tracking = others;
    for (what, client, life) in told.into_iter().filter(|(_, client, _)| Some(*client) != by) {
        tell(world, client, life, if what == 0 { &Message::Changed } else { &Message::Queued });
    }
    for grant in grants {
        let Channel(to) = grant.channel;
        tell(world, (to & 0xff) as usize, to >> 8, &Message::Handed(grant));
    }
}

/// The connections of all clients are new.
pub(super) fn reset_clients(world: &mut World<'_>, node: usize) {
    world.nodes[node].tracking.clear();
    if world.shares.queues() {
        for client in 0..world.clients.len() {
            tell(world, client, world.clients[client].life, &Message::Reset);
        }
    }
}

/// As the listener of production.
pub(super) fn on_message(world: &mut World<'_>, client: usize, message: &Message) {
    match message {
        Message::Handed(HandOff { to: Name::Holder(to), fence, count, lease_ms, .. }) => {
            let lease_ms = if world.scenario.is(Mutant::HandOffIsLease) { u64::MAX } else { *lease_ms };
            let (holder, lease) = (HolderId::from_bytes(to.to_be_bytes()), Duration::from_millis(lease_ms));
            let Some(tokens) = tokens(*fence, *count) else { return };
            if !world.engine(client, |engine, cx| engine.on_hand_off(holder, tokens, lease, cx)) {
                let Client { clock, memory, key, .. } = &mut world.clients[client];
                if memory.releases.undelivered(&world.keys[*key], holder, clock.moment(world.now)) != Sender::Nobody {
                    world.send_releases(client);
                }
            }
        }
        Message::Handed(_) => {}
        Message::Changed => {
            learns(world, client, Coverage::AnnouncedLoss);
            if !world.scenario.is(Mutant::IgnoresLoss) {
                world.engine(client, KeyEngine::on_changed);
            }
        }
        Message::Queued => {
            learns(world, client, Coverage::AnnouncedWaiter);
            if !world.scenario.is(Mutant::IgnoresWaiters) {
                world.engine(client, KeyEngine::on_queued);
            }
        }
        Message::Reset => {
            let after = world.clients[client].memory.timers.after_reset(world.rng.u64(..));
            world.engine(client, |engine, cx| engine.on_reset(after, cx));
        }
    }
}

/// The client is told about the lease that it has, or keeps for its next task.
fn learns(world: &mut World<'_>, client: usize, coverage: Coverage) {
    let idle = idle(world, client);
    let renewed = world.clients[client].memory.hold.as_ref().filter(|held| held.renews).map(|held| held.holder);
    let loses = coverage == Coverage::AnnouncedLoss;
    if let Some(holder) = idle.or(renewed.filter(|_| loses)) {
        world.covered.saw(coverage);
        let told = std::mem::replace(&mut world.clients[client].memory.told, (holder, world.now));
        let is_first = told.0 != holder || world.now - told.1 >= HINT_SPACING_US;
        if is_first && world.now >= world.scenario.calm_us + SETTLED_US {
            world.after(LEARNS_US, client, Timer::Learned(holder));
        }
    }
}

fn idle(world: &World<'_>, client: usize) -> Option<u128> {
    world.clients[client].memory.engine.idle_holder().map(number_of)
}

/// The client no longer assumes a hold that was evicted, and no longer keeps a lease that another client waits for.
pub(super) fn check_learned(world: &mut World<'_>, client: usize, holder: u128) {
    let Client { key, memory, .. } = &world.clients[client];
    let held = memory.hold.as_ref().is_some_and(|held| held.holder == holder && held.renews);
    let idle = idle(world, client) == Some(holder);
    let (owner, waiters) = world.nodes[0].state(*key);
    if (held || idle) && owner != Some(holder) || idle && waiters > 0 {
        let what = format!("c{client} learns that its lease is over, or that another client waits");
        let line = world.line(client, Op::Expect, world.now).what(what);
        world.lines.push(line);
    }
}

/// An operator ends a hold, mostly when the other faults are over. Its holder learns it later than the next one, so two may hold.
pub(super) fn evict(world: &mut World<'_>) {
    let key = world.rng.usize(..world.keys.len());
    let (before, clients, mut grants) = (world.nodes[0].state(key), &world.clients, Vec::new());
    if let Some(holder) = world.nodes[0].evict(world.now, key, &mut |grant| deliver(clients, &mut grants, grant)) {
        world.trace(|| format!("the hold {holder:x} of k{key} is evicted"));
        let mut line = HistoryLine::new("", world.keys[key].as_str(), Op::Fault, world.now, world.now).what("evicted");
        line.excuses = ["C3", "C4", "C6"].map(str::to_owned).to_vec();
        world.lines.push(line.hold(&holder_name(holder), None));
        announce(world, key, before, None, grants);
    }
    let most = if world.now < world.scenario.calm_us { 3_000_000 } else { 200_000 };
    let at = world.now + 20_000 + world.rng.upto(most);
    if at < world.scenario.length_us {
        world.queue.put(at, Event::Evict);
    }
}
