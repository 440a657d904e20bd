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
    for state in states.iter().filter(|state| is_held_for(state, process, backend)) {
        if state["request"] == request(plan) {
            return Ok(state[if as_json { "json" } else { "text" }].as_str().map(str::to_owned));
        }
        if let Some(key) = conflict(state, plan) {
            let why = format!(
                "{key} is already held for process {} ({}), until it ends, by a request with other options: waiting would never \
                 end; `fencelock release` with the holder ID that was printed releases it",
                watched.pid, watched.command
            );
            return Err(Failure::new(Exit::Usage, why));
        }
    }
    Ok(None)
}

fn is_held_for(state: &Value, process: &str, backend: &str) -> bool {
    state["process"] == process && state["backend"] == backend && state["lost"].is_null()
}

/// The key of this request that has to wait for the end of that hold.
fn conflict<'a>(state: &Value, plan: &'a Plan) -> Option<&'a String> {
    let exclusive = plan.mode == Mode::Exclusive || state["request"][1] == mode::column(Mode::Exclusive);
    plan.keys.iter().filter(|_| exclusive && plan.slots.is_none()).find(|key| names(&state["keys"], key))
}

/// Refuses to wait for a lock that is kept for a process that this one runs under.
fn check_above(states: &[Value], plan: &Plan, backend: &str) -> Result<(), Failure> {
    for state in states {
        let Some(key) = conflict(state, plan) else { continue };
        if ancestors().iter().any(|process| is_held_for(state, process, backend)) {
            let why = format!(
                "{key} is held for process {} ({}), which this program runs under, until that process ends: waiting would \
                 deadlock; use another key, or --nested-ok if that lock is released",
                state["pid"],
                state["command"].as_str().unwrap_or_default()
            );
            return Err(Failure::new(Exit::Usage, why));
        }
    }
    Ok(())
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
