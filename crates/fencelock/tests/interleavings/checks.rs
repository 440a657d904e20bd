//! What must be so after every act, and at the end.

use crate::network::{What, at_once, key};
use crate::script::Sight;
use crate::stage::{Act, Stage};
use crate::user::User;
use fencelock::{Backend, LossReason, Owner, Released, Ttl};
use fencelock_core::{Acquire, Claim, Holder, HolderId, Intent};
use std::time::Duration;

/// Timers of the runtime are a millisecond wide.
const GRAIN: Duration = Duration::from_millis(2);
/// The client waits a second for stragglers, then everything is quiet.
const SOON: Duration = Duration::from_millis(2500);
/// With packets lost, places in line and leases may have to end by themselves.
const LATE: Duration = Duration::from_secs(40);

pub(crate) fn after_act(stage: &mut Stage<'_>) -> Result<(), String> {
    let network = std::sync::Arc::clone(&stage.network);
    let mut came = Vec::new();
    for (number, user) in stage.users.iter_mut().enumerate() {
        let (waited, lost) = (user.guard.is_none(), user.lost.is_some());
        user.collect(&network)?;
        if waited && user.guard.is_some() {
            came.push(number);
            // It stood behind the one that gave up, and had not claimed itself.
            let inherited = !user.part.apart && user.id.is_some_and(|id| stage.claimed.contains(&id));
            stage.sights.extend(inherited.then_some(Sight::Inherited));
        }
        if waited && user.guard.is_some() && stage.trace.iter().any(|act| matches!(act, Act::Cancel(_))) {
            stage.sights.insert(Sight::PassedOn);
        }
        if !lost && let Some((reason, _)) = &user.lost {
            stage.sights.insert(if *reason == LossReason::Expired { Sight::Lapsed } else { Sight::Deleted });
        }
        if let Some(end) = &user.end {
            let sight = if *end == Released::Released { Sight::Released } else { Sight::AlreadyLost };
            stage.sights.insert(sight);
        }
    }
    came.into_iter().try_for_each(|number| order(stage, number))?;
    for (number, user) in stage.users.iter().enumerate() {
        losses(stage, user).map_err(|why| format!("user {number}: {why}"))?;
        ends(stage, user).map_err(|why| format!("user {number}: {why}"))?;
    }
    if stage.script.observed { exclusion(stage) } else { Ok(()) }
}

/// Nobody who has waited longer is still waiting.
fn order(stage: &Stage<'_>, came: usize) -> Result<(), String> {
    let kind = stage.lost_packets == 0 && !stage.trace.contains(&Act::Time);
    match stage.users[..came].iter().position(|user| user.asking.is_some()) {
        Some(waits) if stage.script.in_order && kind => Err(format!("user {came} was served before user {waits}")),
        _ => Ok(()),
    }
}

/// At most one guard is valid, and the server knows of it. Whoever was deleted need not have heard of it yet.
fn exclusion(stage: &Stage<'_>) -> Result<(), String> {
    let valid = stage.users.iter().filter(|user| user.guard.as_ref().is_some_and(fencelock::Guard::is_held));
    let valid: Vec<_> = valid.filter_map(|user| user.id).filter(|id| !stage.evicted.contains(id)).collect();
    if valid.len() > 1 {
        return Err(format!("{} guards are valid at once", valid.len()));
    }
    let has = stage.network.holding().and_then(|holding| holding.first().holder_id());
    match valid.first() {
        Some(id) if has != Some(*id) => Err("a guard is valid, and the key is not its own".into()),
        _ => Ok(()),
    }
}

/// A loss is told when it has come, not before, and not later.
fn losses(stage: &Stage<'_>, user: &User) -> Result<(), String> {
    let Some(id) = user.id else { return Ok(()) };
    let certain = stage.network.state().certain.get(&id).copied();
    let evicted = stage.evicted.contains(&id);
    match (&user.lost, certain) {
        (Some((LossReason::Expired, at)), Some(until)) if *at < until || at.since(until) > GRAIN => {
            Err(format!("its lease ended at {until:?}, it was told so at {at:?}"))
        }
        (Some((LossReason::Deleted | LossReason::TakenBy(_), _)), _) if !evicted && stage.script.is_long() => {
            Err("it was told of a loss that was none".into())
        }
        (None, Some(until)) if user.guard.is_some() && stage.network.now().since(until) > GRAIN => {
            Err(format!("its lease ended at {until:?}, and it was not told"))
        }
        _ => Ok(()),
    }
}

/// A hold has one end, and it is the true one.
fn ends(stage: &Stage<'_>, user: &User) -> Result<(), String> {
    let Some((id, end)) = user.id.zip(user.end.as_ref()) else { return Ok(()) };
    let evicted = stage.evicted.contains(&id);
    match (end, &user.lost) {
        (Released::Released, Some((reason, _))) => Err(format!("released, and lost too: {reason}")),
        (Released::AlreadyLost { why }, Some((reason, _))) if why != reason => {
            Err(format!("the release says {why}, lost() said {reason}"))
        }
        // After a lost reply nobody can know which of two ended it, and a short lease ends by itself.
        (Released::Released, None)
            if stage.script.is_long() && !evicted && !stage.network.state().freed.contains(&id) =>
        {
            Err("the release was confirmed, and never carried out".into())
        }
        (Released::AlreadyLost { why }, None) if stage.script.is_long() && !evicted => {
            Err(format!("nobody took it, and the release says {why}"))
        }
        _ => Ok(()),
    }
}

/// A user looks at its own guard.
pub(crate) fn look(stage: &Stage<'_>, user: &User) -> Result<(), String> {
    let (Some(guard), Some(id)) = (&user.guard, user.id) else { return Ok(()) };
    let until = stage.network.state().certain.get(&id).copied();
    let held = guard.is_held();
    let over = user.lost.is_some() || until.is_some_and(|until| stage.network.now() >= until);
    match (held, over) {
        (true, true) => Err("it looks held after its end".into()),
        (false, false) if until.is_some() && !stage.evicted.contains(&id) => Err("it looks lost before its end".into()),
        _ => Ok(()),
    }
}

/// Everybody comes to an end in a kind world, and nothing is left.
pub(crate) async fn wind_down(stage: &mut Stage<'_>) -> Result<(), String> {
    let within = if stage.lost_packets == 0 { SOON } else { LATE };
    let ttl = stage.script.ttl;
    stage
        .until("whoever was deleted hears of it", ttl, |stage| {
            let mut told = stage.users.iter().map(|user| {
                user.guard.is_none() || user.lost.is_some() || user.id.is_none_or(|id| !stage.evicted.contains(&id))
            });
            told.all(|told| told)
        })
        .await?;
    stage
        .until("every waiter is served, every release done", within, |stage| {
            // Each holds for a moment, and makes room for the next.
            stage.users.iter_mut().for_each(User::drop_guard);
            stage.users.iter().all(User::is_through)
        })
        .await?;
    stage.users.iter_mut().for_each(User::go);
    stage
        .until("every task of the client ends", within, |stage| {
            stage.network.packets().is_empty() && tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0
        })
        .await?;
    probe(stage)
}

/// A newcomer gets the lock at once: there is neither a holder nor a line.
fn probe(stage: &Stage<'_>) -> Result<(), String> {
    let holder = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::from_text("probe") };
    let claim = Claim::new(key(), holder, Ttl::default(), Intent::Try);
    match at_once(stage.network.memory.acquire(&claim)) {
        Ok(Acquire::Granted { .. }) => Ok(()),
        other => Err(format!("something is left on the server: {other:?}")),
    }
}

/// What of interest an act is.
pub(crate) fn sights(stage: &Stage<'_>, act: Act) -> Vec<Sight> {
    let packets = stage.network.packets();
    let mut sights = Vec::new();
    match act {
        Act::Cancel(_) => {
            for what in packets {
                match what {
                    What::Claim(_) => sights.push(Sight::CancelledBeforeClaim),
                    What::ClaimAnswer(_) => sights.push(Sight::CancelledBeforeAnswer),
                    What::Message => sights.push(Sight::CancelledBeforeHandOff),
                    _ => {}
                }
            }
        }
        Act::Release(_) | Act::Drop(_) => {
            let renewing = packets.iter().any(|what| matches!(what, What::Renewal(_) | What::RenewalAnswer(_)));
            sights.extend(renewing.then_some(Sight::LetGoDuringRenewal));
        }
        Act::Deliver(_, What::RenewalAnswer(id)) => {
            if let Some(user) = stage.users.iter().find(|user| user.id == Some(id)) {
                sights.extend(user.let_go.then_some(Sight::RenewalAnsweredAfterRelease));
                sights.extend(user.lost.is_some().then_some(Sight::RenewalAnsweredAfterLoss));
            }
        }
        Act::Leave(user) => sights.extend(stage.users[user].guard.is_some().then_some(Sight::ClientWentFirst)),
        _ => {}
    }
    sights
}
