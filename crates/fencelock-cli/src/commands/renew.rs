use super::breaking::out_of_reach;
use super::slots;
use crate::args::{Release, Renew};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::millis;
use crate::keeper;
use crate::keeper::{Done, Kept, Request};
use crate::report::Event;
use crate::text::plain;
use fencelock::{Client, Error, HolderId, HolderInfo, LossReason, Mode, Released, Span};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// Renews a lock that `acquire` acquired.
pub(super) async fn renew(renew: Renew, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&renew.holder)?;
    context
        .with_client(async |client| {
            let (backend, held) = (context.identity(client)?, (&*renew.key, holder));
            let holds: Option<Vec<Kept>> = keeper::ask_holder(client, &backend, held, &Request::Holds).await?;
            let holds = holds.unwrap_or_default();
            if let Some(kept) = holds.iter().find(|kept| kept.lost.is_none() && kept.keys.contains(&renew.key)) {
                // Its keeper renews it.
                let (key, command) = (plain(&renew.key), plain(&kept.command));
                let text = format!("{key}: held until process {} ({command}) ends, without renewals", kept.pid);
                return context.answer_with(&json(&renew, &Ok(Duration::MAX)), &text);
            }
            let lease = match client.renew(&renew.key, holder, renew.ttl).await {
                Err(Error::Lost { reason, .. }) => Err(reason),
                renewed => Ok(renewed?),
            };
            if lease.is_err()
                && let Some(why) = held_elsewhere(&renew.key, holder, client).await
            {
                return Err(Failure::new(Exit::Usage, why));
            }
            let lease = lease.map_err(|reason| after_acquire(&reason));
            if let (Err(reason), false) = (&lease, context.report.json) {
                return Err(not_held(&renew.key, reason));
            }
            // A renewal never shortens the lease.
            let text = format!("{}: held for at least another {}", plain(&renew.key), Span(renew.ttl));
            let success = context.answer_with(&json(&renew, &lease), &text)?;
            Ok(if lease.is_ok() { success } else { Exit::Lost })
        })
        .await
}

fn json(renew: &Renew, lease: &Result<Duration, String>) -> Value {
    json!({
        "key": renew.key,
        "renewed": lease.is_ok(),
        "reason": lease.as_ref().err(),
        "ttl_ms": millis(renew.ttl),
        "expires_in_ms": lease.as_ref().ok().filter(|left| **left != Duration::MAX).copied().map(millis),
    })
}

/// Parses a holder ID; a shell may have kept the line break.
pub(super) fn proof(text: &str) -> Result<HolderId, Failure> {
    text.trim().parse().map_err(|invalid| Failure::new(Exit::Usage, format!("--holder: {invalid}")))
}

/// Where the lock of this holder is, if it is neither lost nor within reach: with a process that answers only to another user, or
/// under the name of a slot.
pub(super) async fn held_elsewhere(key: &str, holder: HolderId, client: &Client) -> Option<String> {
    let is_it = |hold: &&HolderInfo| hold.holder_id() == Some(holder);
    match client.inspect(key).await.ok()? {
        Some(found) if found.has(holder) => {
            let hold = found.holders.iter().find(is_it)?;
            let why = out_of_reach(hold)
                .unwrap_or_else(|| format!("only its process, {}, can renew or release it", hold.occupant));
            Some(format!("{key} is still held by that holder, and nothing was done: {why}"))
        }
        Some(_) => None,
        None => {
            let slots = slots::held(key, client, slots::LISTING).await.ok()?;
            let slot = slots.iter().find(|slot| slot.has(holder))?;
            Some(format!("{key} is not held by that holder, but its slot {} is: name that one", slot.key))
        }
    }
}

pub(super) fn not_held(key: &str, why: impl fmt::Display) -> Failure {
    Failure::new(Exit::Lost, format!("{key} is no longer held by that holder: {why}"))
}

/// Nothing monitors the lock after `acquire`, so it may have been released or may have expired.
pub(super) fn after_acquire(why: &LossReason) -> String {
    match why {
        LossReason::Expired => "it was released, or its lease has ended".to_owned(),
        why => why.to_string(),
    }
}

/// Releases a lock that `acquire` acquired, or all of a session.
pub(super) async fn release(release: Release, context: &Context) -> Result<Exit, Failure> {
    if let Some(pid) = release.while_pid {
        let done = keeper::release_all(&release, pid, context).await?;
        if done.is_empty() {
            let owner = release.owner;
            let whose = owner.as_ref().map_or_else(|| "without a name".to_owned(), |owner| format!("named {owner}"));
            let text = format!("nothing was released: process {pid} has no locks here for the owner {whose}");
            context.report.emit(&Event::info("nothing_kept", text, json!({ "while_pid": pid, "name": owner })));
        }
        let exits: Result<Vec<_>, Failure> = done.iter().map(|done| report(done, context)).collect();
        return Ok(exits?.into_iter().find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success));
    }
    let (tree, holder) = (release.tree.tree()?, proof(&release.holder.unwrap_or_default())?);
    let name = tree.as_ref().map(|tree| tree.as_str().to_owned());
    let key = tree.as_ref().map(|tree| tree.key().to_string()).or(release.key).unwrap_or_default();
    context
        .with_client(async |client| {
            let request = Request::Release { key: key.clone(), holder };
            let backend = context.identity(client)?;
            let mut kept: Option<Vec<Done>> = keeper::ask_holder(client, &backend, (&key, holder), &request).await?;
            // It may be that of a path above.
            let mut above =
                tree.iter().flat_map(|tree| tree.locks(Mode::Exclusive)).filter(|(above, _)| *above != *key);
            while let (None, Some((above, _))) = (&kept, above.next()) {
                kept = keeper::ask_holder(client, &backend, (above.as_str(), holder), &request).await?;
            }
            let done = match kept.and_then(|mut done| done.pop()) {
                Some(done) => Done { keys: vec![name.unwrap_or_else(|| key.clone())], ..done },
                None => match client.release(&key, holder).await? {
                    Released::Released => Done { keys: vec![key.clone()], released: Some(true), why: None },
                    Released::AlreadyLost { why } => {
                        Done { keys: vec![key.clone()], released: Some(false), why: Some(after_acquire(&why)) }
                    }
                },
            };
            if done.released == Some(false)
                && let Some(why) = held_elsewhere(&key, holder, client).await
            {
                return Err(Failure::new(Exit::Usage, why));
            }
            report(&done, context)
        })
        .await
}

/// A lock that was lost is an error, unless others are reported beside it.
fn report(done: &Done, context: &Context) -> Result<Exit, Failure> {
    let exit = match done.released {
        Some(true) => Exit::Success,
        Some(false) => Exit::Lost,
        None => Exit::Unreachable,
    };
    let why = done.why.as_deref();
    for key in &done.keys {
        match done.released {
            Some(false) if !context.report.json => return Err(not_held(key, why.unwrap_or_default())),
            Some(released) => {
                let json = json!({ "key": key, "released": released, "reason": done.why });
                context.answer_with(&json, &format!("{}: released", plain(key)))?;
            }
            None => {
                let why = why.unwrap_or("its keeper gave no reason");
                return Err(Failure::new(Exit::Unreachable, format!("the release of {key} is not confirmed: {why}")));
            }
        }
    }
    Ok(exit)
}
