//! What is kept already for the process of a request, or for one that this program runs under: to wait for that would be in vain.

use super::watched::Watched;
use super::{names, states};
use crate::args::OnLost;
use crate::descendants::ancestors;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::millis;
use crate::mode;
use crate::plan::Plan;
use fencelock::{Client, Mode};
use serde_json::{Value, json};
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks at the keepers, during a wait.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The answer of a keeper that has these locks for the same process already, so that every script of a session can ask for them. Other
/// exclusive locks on one of the keys would wait for that one.
pub(super) async fn kept_already(
    plan: &Plan,
    watched: &Watched,
    backend: &str,
    client: &Client,
    as_json: bool,
) -> Result<Option<String>, Failure> {
    if plan.nested_ok { Ok(None) } else { answer_of(&states(client).await, plan, watched, backend, as_json) }
}

fn answer_of(
    states: &[Value],
    plan: &Plan,
    watched: &Watched,
    backend: &str,
    as_json: bool,
) -> Result<Option<String>, Failure> {
    let Some(process) = &watched.fingerprint else { return Ok(None) };
    let held = || states.iter().filter(|state| is_held_for(state, process, backend));
    if let Some(same) = held().find(|state| state["request"] == request(plan)) {
        return Ok(same[if as_json { "json" } else { "text" }].as_str().map(str::to_owned));
    }
    let Some((_, key)) = conflict(held(), plan) else { return Ok(None) };
    let why = format!(
        "{key} is already held for process {} ({}), until it ends, by a request with other options: waiting would never \
         end; `fencelock release` with the holder ID that was printed releases it",
        watched.pid, watched.command
    );
    Err(Failure::new(Exit::Usage, why))
}

fn is_held_for(state: &Value, process: &str, backend: &str) -> bool {
    state["process"] == process && state["backend"] == backend && state["lost"].is_null()
}

/// The key of this request that has to wait for the end of these holds, and the first of them that is too much: one of both is
/// exclusive, or there are too few permits for all of them.
fn conflict<'a>(held: impl Iterator<Item = &'a Value>, plan: &'a Plan) -> Option<(&'a Value, &'a String)> {
    let (weight, limit) = mode::permits(plan.mode);
    let mut wanted = u64::from(weight.unwrap_or_default());
    let mut held = held.filter(|_| plan.slots.is_none());
    held.find_map(|state| {
        let key = plan.keys.iter().find(|key| names(&state["keys"], key))?;
        let theirs = state["request"][1].as_str()?;
        let permits = theirs.split_once(" of ").and_then(|(weight, _)| weight.parse::<u64>().ok());
        wanted = wanted.saturating_add(permits.unwrap_or_default());
        let exclusive = plan.mode == Mode::Exclusive || theirs == mode::column(Mode::Exclusive);
        let too_many = permits.is_some() && limit.is_some_and(|limit| wanted > limit.into());
        (exclusive || too_many).then_some((state, key))
    })
}

/// Refuses to wait for a lock that is kept for a process that this one runs under.
fn check_above(states: &[Value], plan: &Plan, backend: &str) -> Result<(), Failure> {
    if conflict(states.iter(), plan).is_none() {
        return Ok(());
    }
    let above = ancestors();
    let is_above = |state: &&Value| above.iter().any(|process| is_held_for(state, process, backend));
    let Some((state, key)) = conflict(states.iter().filter(is_above), plan) else { return Ok(()) };
    let why = format!(
        "{key} is held for process {} ({}), which this program runs under, until that process ends: waiting would \
         deadlock; use another key, or --nested-ok if that lock is released",
        state["pid"],
        state["command"].as_str().unwrap_or_default()
    );
    Err(Failure::new(Exit::Usage, why))
}

/// Waits until it turns out that a lock of this request is kept for a process that this one runs under. Cancel safe.
pub(crate) async fn held_above(plan: &Plan, backend: &str, client: &Client) -> Failure {
    if plan.nested_ok {
        return pending().await;
    }
    let mut pause = BETWEEN_LOOKS;
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if let Err(refused) = check_above(&states(client).await, plan, backend) {
            return refused;
        }
    }
}

/// Two scripts of a session may ask at the same time. The one that got the lock has it for both. As [`held_above`], it also ends for
/// a lock of a process above.
pub(super) async fn kept_meanwhile(
    plan: &Plan,
    watched: &Watched,
    backend: &str,
    client: &Client,
    as_json: bool,
) -> Result<String, Failure> {
    if plan.nested_ok {
        return pending().await;
    }
    loop {
        sleep(BETWEEN_LOOKS).await;
        let states = states(client).await;
        if let Some(answer) = answer_of(&states, plan, watched, backend, as_json)? {
            return Ok(answer);
        }
        check_above(&states, plan, backend)?;
    }
}

/// What is the same in each request for the same locks.
pub(super) fn request(plan: &Plan) -> Value {
    let max_hold = plan.rules.max_hold.map(millis);
    json!([plan.keys, mode::column(plan.mode), plan.slots, max_hold, plan.rules.on_lost == OnLost::Term])
}
