//! What must be so after every act.

use crate::coverage::Coverage;
use crate::network::{Call, Load};
use crate::task::certain;
use crate::user::{Ended, Guard, User};
use crate::world::{Act, World};
use fencelock_core::engine::{Grant, Source, Status};
use fencelock_core::{HolderId, LossReason, Mode, Moment};
use std::time::Duration;

/// Timers of a driver are a millisecond wide.
const GRAIN: Duration = Duration::from_millis(2);

/// After every act, when all tasks have done what they can.
pub(crate) fn after_act(world: &mut World) -> Result<(), String> {
    exclusion(world)?;
    for number in 0..world.users.len() {
        let (user, client) = (&world.users[number], world.client_of(number));
        let stopped = world.clients[client].stopped;
        losses(world, user, stopped).map_err(|why| format!("user {number}: {why}"))?;
        ends(world, user).map_err(|why| format!("user {number}: {why}"))?;
    }
    if world.server.overtaken {
        return Err("a holder got the key before one that waited for longer".into());
    }
    announced(world)?;
    handed_on(world)?;
    closed(world)
}

/// A client that is closed ends its waits and keeps no lease for a next task. Once nothing is held or under way, it leaves nothing at
/// the server, and nothing that arrives later changes that.
fn closed(world: &mut World) -> Result<(), String> {
    let closed: Vec<_> = (0..world.clients.len()).filter(|number| !world.clients[*number].open).collect();
    for number in closed {
        let users = || (0..world.users.len()).filter(|user| world.client_of(*user) == number);
        let client = &world.clients[number];
        let rests = users().any(|user| world.users[user].rests() && world.users[user].parked.is_none());
        if !client.stopped && (rests || client.engine.idle_holder().is_some()) {
            return Err(format!("client {number} is closed, and a task waits, or a lease is kept for the next one"));
        }
        let drained = client.engine.is_empty() && client.releases.pending() == 0;
        if !drained || !users().all(|user| world.users[user].is_through()) || world.ledger.troubled {
            continue;
        }
        let detached: Vec<_> =
            users().filter(|user| world.users[*user].detached).filter_map(|user| world.users[user].holder).collect();
        let left = world
            .server
            .holders(world.now)
            .into_iter()
            .find(|holder| world.clients[number].ids.is_of(*holder) && !detached.contains(holder));
        if let Some(holder) = left {
            return Err(format!("client {number} is closed and at rest, and {holder} has the key"));
        }
        world.cover(Coverage::Drained);
    }
    Ok(())
}

/// A client that keeps a lease for its next task learns of every waiter: it releases soon by itself, or a message or an answer
/// about the waiter is on its way to it.
fn announced(world: &mut World) -> Result<(), String> {
    let keeps = |client: &crate::client::Client| client.engine.idle_holder().is_some() && !client.stopped;
    let Some(number) = world.clients.iter().position(keeps).filter(|_| !world.ledger.troubled) else { return Ok(()) };
    let idle = world.clients[number].engine.idle_holder();
    let kept = world.server.holding(world.now).filter(|held| held.first().holder_id() == idle && held.waiters > 0);
    if kept.is_none_or(|held| held.first().mode != Mode::Exclusive) {
        return Ok(());
    }
    let client = &world.clients[number];
    let soon = world.now + Duration::from_millis(10);
    let ends = client.next_timer().is_some_and(|timer| timer <= soon);
    let notified = world.packets.iter().any(|packet| {
        let answers = matches!(packet.load, Load::Answer { .. });
        let is_read = !answers || packet.op().is_some_and(|op| world.waits_for(packet.client, op));
        usize::from(packet.client) == number && packet.load.tells_of_waiters() && is_read
    });
    if ends || notified || !client.renewals.is_empty() {
        return Ok(());
    }
    Err("a client keeps a lease that no task uses, and does not learn that another client waits".into())
}

/// All valid guards may hold the key together, and each client has it for at least as long as it relies on it.
fn exclusion(world: &mut World) -> Result<(), String> {
    let mut valid = Vec::new();
    for number in 0..world.users.len() {
        let Some((holder, until)) = validity(world, number) else { continue };
        if world.was_deleted(holder) {
            continue;
        }
        let reads = world.users[number].guard.as_ref().map_or(Mode::Exclusive, |guard| guard.grant.tenure.mode);
        valid.push(if world.writes_on(number) { Mode::Exclusive } else { reads });
        if !world.server.has_until(holder, world.now, until) {
            return Err(format!("user {number} believes until {until:?}, and the key is not its own for so long"));
        }
    }
    if !fit_together(&valid) {
        return Err(format!("{} guards are valid at once: {valid:?}", valid.len()));
    }
    world.cover_if(valid.len() > 1, Coverage::Together);
    if world.server.foreign_is_lost(world.now) {
        return Err("another program holds, and the key is not its own".into());
    }
    Ok(())
}

fn fit_together(modes: &[Mode]) -> bool {
    let [first, others @ ..] = modes else { return true };
    let weight = |mode: &Mode| if let Mode::Permits { weight, .. } = mode { *weight } else { 0 };
    let used: u32 = modes.iter().map(weight).sum();
    let room = if let Mode::Permits { limit, .. } = first { used <= *limit } else { true };
    room && others.iter().all(|other| first.same_class(*other))
}

/// The hold that a user relies on, and until when.
fn validity(world: &World, number: usize) -> Option<(HolderId, Moment)> {
    let Guard { grant, holder, ends, .. } = world.users[number].guard.as_ref()?;
    let rest = world.clients[world.client_of(number)].engine.rest(grant.hold, world.now)?;
    (!rest.is_zero() && world.now < *ends).then(|| (*holder, (world.now + rest).min(*ends)))
}

fn certainty(world: &World, guard: &Guard) -> Option<Moment> {
    let known = world.ledger.certain.iter().find(|(holder, _)| *holder == guard.holder);
    known.map(|(_, until)| *until)
}

/// A loss is reported when it happens, not before and not later.
fn losses(world: &World, user: &User, stopped: bool) -> Result<(), String> {
    let Some(guard) = &user.guard else { return Ok(()) };
    let (certain, deleted) = (certainty(world, guard), world.was_deleted(guard.holder));
    let budget = world.scenario.budget;
    let late = |at: Moment, until: Moment| at.since(until) > GRAIN && budget.stops + budget.ends == 0;
    match (&user.lost, certain) {
        (Some((LossReason::Expired, at)), Some(until)) if *at < until || late(*at, until) => {
            Err(format!("its lease ended at {until:?}, it was notified at {at:?}"))
        }
        (Some((LossReason::MaxHold, at)), _) if *at < guard.ends || late(*at, guard.ends) => {
            Err(format!("its longest hold ended at {:?}, it was notified at {at:?}", guard.ends))
        }
        (Some((LossReason::Deleted | LossReason::TakenBy(_), _)), _)
            if !deleted && !user.has_given_away(guard.holder) =>
        {
            Err("it was notified of a loss that was none".into())
        }
        (None, Some(until)) if !user.let_go && !stopped && world.now.since(until.min(guard.ends)) > GRAIN => {
            Err(format!("its lease ended at {until:?}, and it was not notified"))
        }
        _ => Ok(()),
    }
}

/// A hold has one end, and it is the true one.
fn ends(world: &World, user: &User) -> Result<(), String> {
    let Some((holder, ended)) = user.holder.zip(user.ended.as_ref()) else { return Ok(()) };
    let (deleted, freed) = (world.was_deleted(holder), world.server.freed.contains(&holder));
    // A short lease ends by itself, and so may a hand-off between two tries of a release, the first of which was lost.
    let may_end = world.ledger.troubled && world.ledger.time_passed;
    let long = world.scenario.ttl > Duration::from_secs(20);
    match (ended, &user.lost) {
        (Ended::Released | Ended::PassedOn, Some((reason, _))) => Err(format!("released, and lost too: {reason}")),
        (Ended::AlreadyLost(why), Some((reason, _))) if why != reason => {
            Err(format!("the release says {why}, and its user was notified of {reason}"))
        }
        (Ended::AlreadyLost(why), None) if long && !deleted && !world.ledger.time_passed => {
            Err(format!("no other client took it, and the release says {why}"))
        }
        (Ended::Released, None) if long && !may_end && !deleted && !freed && has(world, holder).is_none() => {
            Err("the release was confirmed, and never carried out".into())
        }
        _ => Ok(()),
    }
}

/// A key that was handed to a claim that was given up is handed on at once.
fn handed_on(world: &mut World) -> Result<(), String> {
    let undelivered = world.clients.iter().filter(|client| !client.stopped).flat_map(|client| &client.undelivered);
    let undelivered: Vec<_> = undelivered.copied().collect();
    if undelivered.is_empty() {
        return Ok(());
    }
    let mut held = world.server.holders(world.now).into_iter();
    let Some(holder) = held.find(|holder| undelivered.contains(holder)) else { return Ok(()) };
    let releases = world.packets.iter().any(|packet| packet.releases(holder));
    let answered = world.clients.iter().any(|client| client.releasing.iter().any(|one| one.release.holder == holder));
    // A release that the server refuses is repeated later.
    let refuses = world.scenario.budget.refusals > 0;
    if releases || answered || refuses || has(world, holder).is_some() || world.ledger.troubled {
        return Ok(());
    }
    Err("a key that was handed to a claim that was given up is not handed on".into())
}

/// The user that has this holder's lock, or had it last while its client still keeps the lease.
fn has(world: &World, holder: HolderId) -> Option<usize> {
    let has = |user: &User| user.guard.as_ref().is_some_and(|guard| guard.holder == holder);
    let keeps = world.clients.iter().any(|client| client.engine.idle_holder() == Some(holder));
    world.users.iter().position(has).or(keeps.then_some(usize::MAX))
}

/// A user gets permits. No other one of its client has waited for the same ones for longer, unless it waits for an answer.
pub(crate) fn check_order_of_permits(world: &mut World, user: usize) {
    let plan = world.scenario.users[user];
    let hasty = world.left.haste != world.scenario.budget.haste;
    let tasks = || world.scenario.users.iter().zip(&world.users).filter(|(other, _)| other.client == plan.client);
    let alike = tasks().all(|(other, _)| (other.kind, other.ttl) == (plan.kind, plan.ttl));
    let queues = plan.wait != Some(Duration::ZERO);
    if !matches!(plan.kind.mode(), Mode::Permits { .. }) || !queues || !alike || hasty || world.ledger.troubled {
        return;
    }
    let turn = world.users[user].turn;
    let overtaken = tasks().position(|(_, other)| other.turn < turn && !other.woken && other.rests());
    if let Some(overtaken) = overtaken {
        world.break_down(format!("user {user} got permits before another one of its client, the {overtaken}th"));
    }
}

/// A user begins to hold.
pub(crate) fn check_grant(world: &mut World, user: usize, grant: &Grant, holder: HolderId) {
    let (fence, last) = (grant.tenure.fence.get(), world.ledger.last_fence);
    // Those that hold the key together need no order.
    let last = if grant.tenure.mode == Mode::Exclusive { last } else { world.ledger.last_writer };
    let grows = fence > last || fence == last && grant.source == Source::Resumed;
    // The message of a hand-off whose key another program has deleted comes at any time.
    if !grows && !world.was_deleted(holder) {
        world.break_down(format!("user {user} began with token {fence} after {last}"));
    }
    // Each grant of permits has a token of its own.
    if matches!(grant.tenure.mode, Mode::Permits { .. }) && grant.source != Source::Resumed {
        if world.ledger.permit_tokens.contains(&fence) {
            world.break_down(format!("user {user} began with token {fence}, which another one had"));
        }
        world.ledger.permit_tokens.push(fence);
        world.ledger.permit_tokens.sort_unstable();
    }
    world.ledger.last_fence = fence.max(world.ledger.last_fence);
    if grant.tenure.mode == Mode::Exclusive {
        world.ledger.last_writer = fence.max(world.ledger.last_writer);
    }
    let kind = !world.ledger.troubled && !world.ledger.time_passed;
    let before = world.users[..user].iter().position(|user| user.asked && user.task.is_some());
    if let Some(before) = before.filter(|_| world.scenario.in_order && kind) {
        world.break_down(format!("user {user} was served before user {before}"));
    }
    if grant.source == Source::HandedOff
        && let Some((_, sent, _)) = world.ledger.backends.iter().find(|(known, ..)| *known == holder)
    {
        let until = certain(*sent, Duration::from_secs(3).min(world.request(user).ttl.get()));
        world.ledger.certain.retain(|(known, _)| *known != holder);
        world.ledger.certain.push((holder, until));
    }
}

/// A user checks its own guard.
pub(crate) fn check_guard(world: &mut World, user: usize) -> Result<(), String> {
    let Some(guard) = world.users[user].guard.clone() else { return Ok(()) };
    let (client, notified) = (world.client_of(user), world.users[user].lost.is_some());
    let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
    let valid = matches!(world.call(client, |engine, cx| engine.status(hold, tenure, cx)), Status::Held(_));
    let until = certainty(world, &guard).map(|until| until.min(guard.ends));
    let over = notified || until.is_some_and(|until| world.now >= until);
    match (valid, over) {
        (true, true) => Err(format!("user {user}: it is reported held after its end")),
        (false, false) if until.is_some() && !world.was_deleted(guard.holder) => {
            Err(format!("user {user}: it is reported lost before its end"))
        }
        _ => Ok(()),
    }
}

/// What of interest an act is.
pub(crate) fn cover_act(world: &mut World, act: Act) {
    let any = |world: &World, is: fn(&Load) -> bool| world.packets.iter().any(|packet| is(&packet.load));
    match act {
        Act::Cancel(_) => {
            let claim = any(world, |load| matches!(load, Load::Request { call: Call::Claim(_), .. }));
            let answer = any(world, |load| matches!(load, Load::Answer { reply: crate::network::Reply::Claim(_), .. }));
            let hand_off = any(world, |load| matches!(load, Load::HandOff { .. }));
            world.cover_if(claim, Coverage::CancelledBeforeClaim);
            world.cover_if(answer, Coverage::CancelledBeforeAnswer);
            world.cover_if(hand_off, Coverage::CancelledBeforeHandOff);
        }
        Act::Release(user) | Act::Drop(user) => {
            let renewing = !world.clients[world.client_of(user)].renewals.is_empty();
            world.cover_if(renewing, Coverage::ReleasedDuringRenewal);
        }
        Act::Reset(client) => {
            let waits = |user: &usize| world.client_of(*user) == client && world.users[*user].task.is_some();
            let waits = (0..world.users.len()).any(|user| waits(&user));
            world.cover_if(waits, Coverage::AskedAfterReset);
        }
        Act::Continue(client) => {
            let over = |user: usize| {
                let guard = world.users[user].guard.as_ref().filter(|_| world.client_of(user) == client);
                guard.and_then(|guard| certainty(world, guard)).is_some_and(|until| world.now >= until)
            };
            let over = (0..world.users.len()).any(over);
            world.cover_if(over, Coverage::ContinuedTooLate);
        }
        _ => {}
    }
}

pub(crate) fn cover_renewal(world: &mut World, holder: HolderId) {
    let of = |user: &&User| user.holder == Some(holder);
    let (mut released, mut lost) = (false, false);
    for user in world.users.iter().filter(of) {
        (released, lost) = (released || user.let_go, lost || user.lost.is_some());
    }
    world.cover_if(released, Coverage::RenewalAnsweredAfterRelease);
    world.cover_if(lost, Coverage::RenewalAnsweredAfterLoss);
}
