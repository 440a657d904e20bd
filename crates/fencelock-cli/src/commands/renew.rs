use crate::args::Renew;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::millis;
use crate::keeper::{self, Request};
use crate::text::plain;
use fencelock::{Error, HolderId, LossReason, Span};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// Renews a lock that `acquire` acquired.
pub(super) async fn renew(renew: Renew, context: &Context) -> Result<Exit, Failure> {
    let holder = proof(&renew.holder)?;
    context
        .with_client(async |client| {
            if let Some(state) = keeper::ask(client, holder, &Request::State).await? {
                return kept(&renew, &state, context);
            }
            let lease = match client.renew(&renew.key, holder, renew.ttl).await {
                Err(Error::Lost { reason, .. }) => Err(reason),
                renewed => Ok(renewed?),
            };
            let (exit, text) = match &lease {
                _ if context.report.json => (
                    lease.as_ref().map_or(Exit::Lost, |_| Exit::Success),
                    json(&renew, &lease.as_ref().copied().map_err(LossReason::to_string)),
                ),
                Ok(_) => (Exit::Success, {
                    // A renewal never shortens the lease.
                    format!("{}: held for at least another {}", plain(&renew.key), Span(renew.ttl))
                }),
                Err(reason) => return Err(not_held(&renew.key, after_acquire(reason))),
            };
            context.answer(&format!("{text}\n"))?;
            Ok(exit)
        })
        .await
}

/// A lock of `acquire --while-pid` is renewed by its keeper.
fn kept(renew: &Renew, state: &Value, context: &Context) -> Result<Exit, Failure> {
    let is_it = keeper::names(&state["keys"], &renew.key);
    let lost = if is_it { state["lost"].as_str() } else { Some("it is held by another holder") };
    if let Some(why) = lost {
        if context.report.json {
            context.answer(&format!("{}\n", json(renew, &Err(why.to_owned()))))?;
            return Ok(Exit::Lost);
        }
        return Err(not_held(&renew.key, why));
    }
    let text = if context.report.json {
        json(renew, &Ok(Duration::MAX))
    } else {
        let (key, pid, command) =
            (plain(&renew.key), &state["pid"], plain(state["command"].as_str().unwrap_or_default()));
        format!("{key}: held until process {pid} ({command}) ends, without renewals")
    };
    context.answer(&format!("{text}\n"))?;
    Ok(Exit::Success)
}

fn json(renew: &Renew, lease: &Result<Duration, String>) -> String {
    json!({
        "key": renew.key,
        "renewed": lease.is_ok(),
        "reason": lease.as_ref().err(),
        "ttl_ms": millis(renew.ttl),
        "expires_in_ms": lease.as_ref().ok().filter(|left| **left != Duration::MAX).copied().map(millis),
    })
    .to_string()
}

/// Parses a holder ID; a shell may have kept the line break.
pub(super) fn proof(text: &str) -> Result<HolderId, Failure> {
    text.trim().parse().map_err(|invalid| Failure::new(Exit::Usage, format!("--holder: {invalid}")))
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
