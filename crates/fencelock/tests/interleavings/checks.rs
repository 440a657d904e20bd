//! What must be so after every act, and at the end.

use crate::network::{What, at_once, key};
use crate::scenarios::Coverage;
use crate::stage::{Act, Stage};
use crate::user::User;
use fencelock::{Backend, LossReason, Owner, Released, Ttl};
use fencelock_core::{Acquire, Claim, Holder, HolderId, Intent};
use std::time::Duration;

/// Timers of the runtime are a millisecond wide.
const GRAIN: Duration = Duration::from_millis(2);
/// The client waits a second for stragglers, then everything is quiet.
const SOON: Duration = Duration::from_millis(2500);
/// With packets lost, positions in the queue and leases may have to end by themselves.
const LATE: Duration = Duration::from_secs(40);

pub(crate) fn after_act(stage: &mut Stage) -> Result<(), String> {
    let network = std::sync::Arc::clone(&stage.network);
    for user in &mut stage.users {
        let waited = user.guard.is_none();
        user.collect(&network)?;
        if waited && user.guard.is_some() && stage.trace.iter().any(|act| matches!(act, Act::Cancel(_))) {
            stage.covered.insert(Coverage::PassedOn);
        }
        if user.end == Some(Released::Released) {
            stage.covered.insert(Coverage::Released);
        }
    }
    for (number, user) in stage.users.iter().enumerate() {
        losses(stage, user).map_err(|why| format!("user {number}: {why}"))?;
        ends(stage, user).map_err(|why| format!("user {number}: {why}"))?;
    }
    exclusion(stage)
}

/// The valid guards may hold the key at the same time, and the server knows all of their holders.
fn exclusion(stage: &mut Stage) -> Result<(), String> {
    let valid = stage.users.iter().filter(|user| user.guard.as_ref().is_some_and(fencelock::Guard::is_held));
    let valid: Vec<_> = valid.filter_map(|user| Some((user.id?, user.part.reads))).collect();
    if valid.len() > 1 && valid.iter().any(|(_, reads)| !reads) {
        return Err(format!("guards are valid at once that must not be: {valid:?}"));
    }
    let holding = stage.network.holding();
    if let Some((id, _)) = valid.iter().find(|(id, _)| !holding.as_ref().is_some_and(|holding| holding.has(*id))) {
        return Err(format!("the guard of {id} is valid, and the key is not its own"));
    }
    if valid.len() > 1 {
        stage.covered.insert(Coverage::HeldTogether);
    }
    Ok(())
}

/// A loss is reported when it happens, not before and not later. No other client takes a key away here.
fn losses(stage: &Stage, user: &User) -> Result<(), String> {
    let Some(id) = user.id else { return Ok(()) };
    let certain = stage.network.state().certain.get(&id).copied();
    match (&user.lost, certain) {
        (Some((LossReason::Expired, at)), Some(until)) if *at < until || at.since(until) > GRAIN => {
            Err(format!("its lease ended at {until:?}, it was notified at {at:?}"))
        }
        (Some((LossReason::Deleted | LossReason::TakenBy(_), _)), _) => {
            Err("it was notified of a loss, but the lock is held".into())
        }
        (None, Some(until)) if user.guard.is_some() && stage.network.now().since(until) > GRAIN => {
            Err(format!("its lease ended at {until:?}, and it was not notified"))
        }
        _ => Ok(()),
    }
}

/// A hold has one end, and it is the true one.
fn ends(stage: &Stage, user: &User) -> Result<(), String> {
    let Some((id, end)) = user.id.zip(user.end.as_ref()) else { return Ok(()) };
    match (end, &user.lost) {
        (Released::Released, Some((reason, _))) => Err(format!("released, and lost too: {reason}")),
        (Released::AlreadyLost { why }, Some((reason, _))) if why != reason => {
            Err(format!("the release says {why}, lost() said {reason}"))
        }
        (Released::Released, None) if !stage.network.state().freed.contains(&id) && !is_joint(stage, user) => {
            Err("the release was confirmed, and never carried out".into())
        }
        (Released::AlreadyLost { why }, None) => Err(format!("no other client took it, and the release says {why}")),
        _ => Ok(()),
    }
}

/// Whether another reader of the client has the same hold. Then only the last release of it is carried out.
fn is_joint(stage: &Stage, user: &User) -> bool {
    user.part.reads && stage.users.iter().filter(|other| other.id == user.id).count() > 1
}

/// Without further faults every task finishes, and nothing is left.
pub(crate) async fn wind_down(stage: &mut Stage) -> Result<(), String> {
    let within = if stage.lost_packets == 0 { SOON } else { LATE };
    stage
        .until("every waiter is served, every release done", within, |stage| {
            // Each holds for a moment and then releases.
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

/// A newcomer gets the lock at once: there is no holder and no queue.
fn probe(stage: &Stage) -> Result<(), String> {
    let holder = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::from_text("probe") };
    let claim = Claim::new(key(), holder, Ttl::default(), Intent::Try);
    match at_once(stage.network.memory.acquire(&claim)).answer {
        Ok(Acquire::Granted { .. }) => Ok(()),
        other => Err(format!("something is left on the server: {other:?}")),
    }
}

/// What of interest an act is.
pub(crate) fn covered(stage: &Stage, act: Act) -> Vec<Coverage> {
    let packets = stage.network.packets();
    let mut covered = Vec::new();
    match act {
        Act::Cancel(_) => {
            for what in packets {
                match what {
                    What::Claim(_) => covered.push(Coverage::CancelledBeforeClaim),
                    What::ClaimAnswer(_) => covered.push(Coverage::CancelledBeforeAnswer),
                    What::Message => covered.push(Coverage::CancelledBeforeHandOff),
                    _ => {}
                }
            }
        }
        Act::Release(_) | Act::Drop(_) => {
            let renewing = packets.iter().any(|what| matches!(what, What::Renewal(_) | What::RenewalAnswer(_)));
            covered.extend(renewing.then_some(Coverage::LetGoDuringRenewal));
        }
        Act::Deliver(_, What::RenewalAnswer(id)) => {
            if let Some(user) = stage.users.iter().find(|user| user.id == Some(id)) {
                covered.extend(user.let_go.then_some(Coverage::RenewalAnsweredAfterRelease));
            }
        }
        Act::Leave(user) => covered.extend(stage.users[user].guard.is_some().then_some(Coverage::ClientWentFirst)),
        _ => {}
    }
    covered
}
