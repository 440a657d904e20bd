//! Tries what a lock does on this server, with the scripts of a lock, each in `lua/trial.lua`.

use super::features;
use crate::connection::fault::{fault_of, is_about_a_key, words};
use crate::connection::link::wake_channels;
use crate::connection::session::Session;
use crate::scripts::quarantine::MarkerState;
use crate::scripts::script;
use crate::server::Redis;
use fencelock_core::{BoxFuture, Fault, Finding, Key, Level, Trial, Tried, Unknown, side_key};
use redis::Value;
use std::sync::{Arc, PoisonError};

pub(crate) const OTHER_KEY: &str =
    "name a key that this user may use and no program uses: doctor --key KEY; or set prefix= in the URL";

/// The features that need the clock of the server; its finding is `clock`.
const BY_CLOCK: [&str; 3] = ["shared_locks", "semaphores", "once"];

pub(crate) async fn try_out(redis: &Redis, named: Option<&Key>) -> Vec<Finding> {
    // Another finding says why there is no session.
    let Ok(session) = redis.link.session().await else { return Vec::new() };
    if let Some(refusal) = not_granting(redis, &session).await {
        return vec![refusal];
    }
    if let Some(key) = named {
        let redis_key = redis.link.target.redis_key(key).into_owned();
        *redis.link.probe.lock().unwrap_or_else(PoisonError::into_inner) = Some(redis_key);
    }
    let twin = Redis { link: Arc::clone(&redis.link), in_trial: true };
    let trial = Trial::new(&twin, getrandom::fill, named, &features::slot_tag(&redis.link.target));
    let Some(trial) = trial else { return vec![Trial::impossible()] };
    let key = trial.key();
    if named.is_some()
        && let Some(why) = why_used(redis, &session, key).await
    {
        return vec![Finding::not_tried(why, "name a key that no program uses: --key KEY")];
    }
    let clear = || -> BoxFuture<'_, bool> { Box::pin(clean(&twin, key, named.is_none())) };
    let mut tried = Tried::default();
    match expires(&twin, &session, key).await {
        Ok(()) => tried = trial.run(&clear).await,
        Err(cause) => tried.failures.push(("exclusive_locks", "renew", cause)),
    }
    if session.send(&features::time_in_a_script(redis)).await.is_err() {
        tried.failures.retain(|(feature, ..)| !BY_CLOCK.contains(feature));
    }
    let unpublished = publishes(redis, &session).await.err().map(|why| ("wake_ups", why));
    // For the report that follows.
    *redis.link.failed.lock().unwrap_or_else(PoisonError::into_inner) = tried.reasons().chain(unpublished).collect();
    vec![finding(&tried, key, named.is_some())]
}

/// Why a claim would not be granted, or would write a marker.
async fn not_granting(redis: &Redis, session: &Session) -> Option<Finding> {
    let (why, advice) = match redis.link.inspect_marker(session, redis.quarantine()?).await {
        Ok(MarkerState::Serving) => return None,
        Ok(MarkerState::Quarantined(_)) => ("the server is in quarantine", "run doctor again when it has ended"),
        Ok(_) => {
            ("doctor writes no marker of a quarantine", "run doctor again after the first lock, or fencelock init")
        }
        Err(_) => ("the quarantine of this server refuses every claim", "see quarantine"),
    };
    Some(Finding::not_tried(why, advice))
}

/// Why a trial of this key could harm another program.
async fn why_used(redis: &Redis, session: &Session, key: &Key) -> Option<String> {
    let redis_key = redis.link.target.redis_key(key);
    let mut exists = redis::cmd("EXISTS");
    exists.arg(&*redis_key);
    for side in script::SIDE.into_iter().chain([script::COMPLETION_KEY]) {
        exists.arg(side_key(&redis_key, side));
    }
    match session.send(&exists).await {
        Ok(Value::Int(0)) => None,
        Ok(_) => Some(format!("{key} is in use, or was less than 24 h ago")),
        Err(error) => Some(format!("whether {key} is in use is unknown: {}", words(&error))),
    }
}

/// Whether a message reaches the channels of waiters. Nobody subscribes to this channel.
async fn publishes(redis: &Redis, session: &Session) -> Result<(), String> {
    let channel = format!("{}doctor", wake_channels(&redis.link.target.prefix));
    let publish = async |command: &str| {
        let answer = session.send(redis::cmd(command).arg(&channel).arg("")).await;
        answer
            .map(drop)
            .map_err(|error| format!("no wake-ups ({command}: {}): waiters poll once per second", words(&error)))
    };
    if session.shards.is_some() && publish("SPUBLISH").await.is_ok() { Ok(()) } else { publish("PUBLISH").await }
}

fn finding(tried: &Tried, key: &Key, is_named: bool) -> Finding {
    let causes = tried.failures.iter().flat_map(|(.., cause)| cause.nodes());
    if causes.clone().any(|node| node.fault == Fault::ReadOnly) {
        return Finding::not_tried("this server is a replica", "use the address of its master");
    }
    if !is_named && causes.clone().any(|node| node.fault == Fault::Denied && is_about_a_key(&node.detail)) {
        let why = format!("this user may not use the key {key}, or its side keys");
        let mut finding = Finding::not_tried(why, OTHER_KEY);
        finding.level = Level::Warning;
        return finding;
    }
    tried.finding(advice)
}

/// What to do about a server that refuses what a lock needs.
pub(crate) const fn advice(fault: Fault) -> &'static str {
    match fault {
        Fault::Denied => "check the user and the password, and its rights: docs/en/operations.md lists them",
        Fault::Full => "provide the server with memory, a writable disk, or its replicas",
        Fault::ReadOnly => "use the address of the master",
        Fault::Loading => "wait until the server has loaded its data",
        Fault::Busy => "see what the server does; in a cluster: redis-cli --cluster check HOST:PORT",
        Fault::Timeout | Fault::Unreachable => "check the address, the server, and the network to it",
        Fault::Unsupported => "give the commands of the server their own names, or use another server",
        _ => "check the URL and the server",
    }
}

/// Whether keys of a trial end, whatever else is refused.
async fn expires(redis: &Redis, session: &Session, key: &Key) -> Result<(), Unknown> {
    let unused = side_key(&redis.link.target.redis_key(key), script::ABSENT_KEY);
    let mut eval = redis::cmd("EVAL");
    eval.arg("return redis.call('PEXPIRE', KEYS[1], 1)").arg(1).arg(unused);
    let named = |error| Unknown::new(redis.link.node(), fault_of(&error), format!("{} (PEXPIRE)", words(&error)));
    session.send(&eval).await.map(drop).map_err(named)
}

/// Removes what the trial has left. Otherwise it expires.
async fn clean(redis: &Redis, key: &Key, is_own: bool) -> bool {
    let Ok(session) = redis.link.session().await else { return false };
    let call = script::trial_end(&redis.link.target.redis_key(key), is_own);
    matches!(session.send(&call.in_full()).await, Ok(Value::Int(1)))
}
