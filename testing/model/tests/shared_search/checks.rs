//! The promises.

use crate::client::Client;
use crate::world::{Setting, World, holder};
use fencelock_core::Mode;
use fencelock_model::{KeyModel, Name, Value, WaiterEntry};

/// Why clients may not believe at the same time that they hold the key in these modes.
fn conflict(beliefs: &[Mode]) -> Option<&'static str> {
    let permits = || beliefs.iter().filter_map(|mode| mode.limit().map(|limit| (mode.weight(), limit)));
    let least = permits().map(|(_, limit)| limit).min();
    let permits_only = permits().count() == beliefs.len();
    match (beliefs, least) {
        ([] | [_], _) => None,
        (_, Some(least)) if permits_only && permits().map(|(weight, _)| weight).sum::<u32>() > least => {
            Some("too many permits")
        }
        (_, Some(least)) if permits_only => permits().any(|(_, limit)| limit != least).then_some("two limits"),
        _ => beliefs.iter().any(|mode| *mode != Mode::Shared).then_some("exclusion"),
    }
}

fn exclusion(world: &World) -> Result<(), String> {
    let now_ms = world.now_us / 1000;
    let beliefs = world.clients.iter().filter_map(|client: &Client| client.belief(now_ms));
    let beliefs: Vec<Mode> = beliefs.map(|belief| belief.mode).collect();
    if let Some(why) = conflict(&beliefs) {
        return Err(format!("{why}: {beliefs:?}"));
    }
    if world.plain_until_ms.is_some_and(|until| until >= now_ms) && !beliefs.is_empty() {
        return Err(format!("a plain client beside {beliefs:?}"));
    }
    Ok(())
}

/// A client that assumes that it holds the key has a hold at the server.
fn key(world: &World) -> Result<(), String> {
    let believes = |i: &usize| world.clients[*i].belief(world.now_us / 1000).is_some();
    let without = (0..world.clients.len()).filter(believes).find(|i| !world.holds_key(*i));
    without.map_or(Ok(()), |i| Err(format!("key: client {i} believes to hold it")))
}

/// After each act of a client, another program or the time.
pub(crate) fn promises(
    world: &World,
    setting: &Setting,
    actor: Option<usize>,
    before: &KeyModel,
    used_before: u32,
) -> Result<(), String> {
    let order = order(before, &world.key, world.now_us, actor.map(holder));
    let exclusion = if setting.resizes > 0 { limit(world, used_before) } else { exclusion(world) };
    let broken = [order, exclusion, key(world)].into_iter().filter_map(Result::err);
    broken.filter(|broken| setting.seeks(broken)).map(Err).next().unwrap_or(Ok(()))
}

/// The permits of clients that have a hold, or believe to have one: a waiter that was granted some learns it by its next poll.
pub(crate) fn used(world: &World) -> u32 {
    let now_ms = world.now_us / 1000;
    let holds = if world.limit().is_some() { holders(&world.key) } else { Vec::new() };
    let is_live = |holder: &u128| holds.contains(holder) && world.key.holds.ends_ms[holder] >= now_ms;
    let clients =
        (1..).zip(&world.clients).filter(|(holder, client)| is_live(holder) || client.belief(now_ms).is_some());
    clients.map(|(_, client)| client.kind.mode().weight()).sum()
}

/// A semaphore that may be resized: more permits than the limit are in use only if it was larger, and then none is added.
fn limit(world: &World, used_before: u32) -> Result<(), String> {
    let (used, limit) = (used(world), world.limit().unwrap_or(0));
    if used > limit && used > used_before {
        return Err(format!("too many permits: {used} of {limit} permits, after {used_before}"));
    }
    let now_ms = world.now_us / 1000;
    let beliefs = world.clients.iter().filter_map(|client| client.belief(now_ms));
    let alone = beliefs.filter(|belief| belief.mode == Mode::Exclusive).count();
    if alone > 1 || alone == 1 && used > 0 {
        return Err(format!("exclusion: {alone} alone, and {used} permits"));
    }
    Ok(())
}

fn holders(key: &KeyModel) -> Vec<u128> {
    match key.lock.as_ref().map(|lock| &lock.value) {
        Some(Value::Ours { holder, .. }) => vec![*holder],
        Some(Value::Shared { .. }) => key.holds.ends_ms.keys().copied().collect(),
        _ => Vec::new(),
    }
}

/// A live waiter that this version can read.
fn waiter<'a>(key: &'a KeyModel, name: &Name, now_us: u64) -> Option<&'a WaiterEntry> {
    let alive = key.deadlines.until_ms.get(name).is_some_and(|until_ms| until_ms * 1000 > now_us);
    key.waiters.read(name).filter(|_| alive)
}

/// No client was granted the key before a live waiter in front, except that the client that acted may have left the queue.
fn order(before: &KeyModel, after: &KeyModel, now_us: u64, actor: Option<u128>) -> Result<(), String> {
    let (had, have) = (holders(before), holders(after));
    let is_served = |name: &Name| have.iter().copied().chain(actor).any(|holder| *name == Name::Holder(holder));
    for holder in have.iter().filter(|holder| !had.contains(holder)) {
        let ahead =
            before.queue.members.iter().map(|(_, name)| name).take_while(|name| **name != Name::Holder(*holder));
        let mut overtaken = ahead.filter(|name| waiter(before, name, now_us).is_some() && !is_served(name));
        if let Some(overtaken) = overtaken.next() {
            return Err(format!("order: {holder} before {overtaken:?}"));
        }
    }
    Ok(())
}

/// After a call that frees the key or permits and has finished its work.
pub(crate) fn first_waiter_has_no_room(key: &KeyModel, now_us: u64) -> Result<(), String> {
    let first = key.queue.members.first().map(|(_, name)| name);
    match first.and_then(|name| waiter(key, name, now_us)) {
        Some(waiter) if key.fits(waiter.mode()) => Err(format!("there is room for the first waiter: {waiter:?}")),
        _ => Ok(()),
    }
}
