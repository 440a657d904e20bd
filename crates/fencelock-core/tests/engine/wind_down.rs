//! The end of a schedule: without further faults every task must finish.

use crate::client::TIMEOUT;
use crate::parking::TURN;
use crate::scenario::NO_BUDGET;
use crate::user::User;
use crate::world::{Act, World};
use fencelock_core::Moment;
use std::time::Duration;

/// The client waits a second for stragglers, then nothing moves.
const SOON: Duration = Duration::from_millis(2500);
/// After lost packets or stops, positions in the queue and leases may have to end by themselves.
const LATE: Duration = Duration::from_secs(40);

/// Every user is served, every release is carried out, and nothing is left at the server.
pub(crate) fn wind_down(mut world: World) -> Result<World, Box<(String, World)>> {
    match run(&mut world) {
        Ok(()) => Ok(world),
        Err(why) => Err(Box::new((why, world))),
    }
}

fn run(world: &mut World) -> Result<(), String> {
    let budget = world.scenario.budget;
    // A task whose TTL is shorter than a timeout gives up after the first one, and its claim may arrive later.
    let gives_up = world.scenario.ttl < TIMEOUT;
    let leases_end = world.ledger.troubled || budget.foreign > 0 || budget.ends > 0 || gives_up;
    let within = if leases_end { LATE * (1 + u32::from(budget.duplicates)) } else { SOON };
    world.left = NO_BUDGET;
    world.clients.iter_mut().for_each(|client| client.stopped = false);
    if world.server.foreign_until.is_some() {
        world.act(Act::ForeignRelease)?;
    }
    let ttl = world.scenario.ttl;
    until(world, "users whose key was deleted are notified", ttl, |world| {
        let mut users = world.users.iter();
        // A request that came twice may have taken the key again.
        let notified = |holder| !world.was_deleted(holder) || world.server.holders(world.now).contains(&holder);
        users.all(|user| user.guard.as_ref().is_none_or(|guard| user.lost.is_some() || notified(guard.holder)))
    })?;
    if let Some(parked) = world.users.iter().position(|user| user.parked.is_some()) {
        // Other clients may have to wait until the lease of its claim ends.
        let served =
            |world: &World, user| world.client_of(user) != world.client_of(parked) || world.users[user].is_through();
        until(world, "others are served although a task does not run", within + TURN * 2, |world| {
            (0..world.users.len()).all(|user| user == parked || served(world, user))
        })?;
        for user in 0..world.users.len() {
            world.act(Act::Unpark(user))?;
        }
    }
    until(world, "every user is served", within, |world| world.users.iter().all(User::is_through))?;
    until(world, "every client comes to rest", within, |world| {
        world.packets.is_empty() && world.clients.iter().all(crate::client::Client::is_idle)
    })?;
    if world.clients.iter().any(|client| (client.timers.holds(), client.claims) != (0, 0)) {
        return Err("the engine has not reported the end of each hold and each claim".into());
    }
    let mut polled = Moment::default();
    if leases_end {
        // What is left of a lost release, or of a request that came twice, ends with its lease, or is not polled.
        world.now = world.now + within;
        polled = world.now;
    }
    if world.server.is_clean(world.now, polled) { Ok(()) } else { Err("something is left at the server".into()) }
}

/// A detached hold is released by its id, unless another user resumes it.
fn release_detached(world: &mut World) {
    for user in 0..world.users.len() {
        let resumes = |other: usize| world.scenario.users[other].resumes.is_some() && !world.users[other].is_through();
        let is_taken = (0..world.users.len()).any(resumes);
        if let Some(holder) = world.users[user].holder.filter(|_| world.users[user].detached && !is_taken) {
            world.users[user].detached = false;
            world.server.release(world.now, holder, None);
            let events = world.server.table.take_events();
            world.send_events(events, None);
        }
    }
}

/// Everything arrives in order and time passes, until something is so.
fn until(world: &mut World, what: &str, within: Duration, so: impl Fn(&World) -> bool) -> Result<(), String> {
    let end = world.now + within;
    let deletions = what.starts_with("users whose");
    loop {
        world.settle()?;
        // Each holds for a moment and then releases.
        let holds = |user: &User| !deletions && user.guard.is_some() && user.downgrading.is_none();
        while let Some(user) = world.users.iter().position(holds) {
            world.act(Act::Drop(user))?;
            world.settle()?;
        }
        release_detached(world);
        if so(world) {
            return Ok(());
        }
        if !world.packets.is_empty() {
            world.act(Act::Deliver(0))?;
            continue;
        }
        let next = world.next_moment();
        if next > end || next <= world.now {
            return Err(format!("not within {within:?}: {what}"));
        }
        world.left.time = 1;
        world.act(Act::Time)?;
    }
}
