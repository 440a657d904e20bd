//! The keeper: a detached process of `acquire --while-pid`, which holds locks until another process ends.
//!
//! `acquire` starts it, passes it the arguments and a descriptor of the process over a socket, and relays its answer. Until the answer
//! is delivered, the keeper ends with `acquire`, so an interrupted wait leaves nothing behind. From then on it ends only with the process,
//! with `release`, `break` or `--max-hold`: it has a session of its own, no standard streams, and ignores the signals of a log-out.
//!
//! `front` is the side of `acquire`, `process` that of the keeper, `session` what other keepers hold already. `watched` is the process,
//! `control` the socket for `release` and `break`, `system_log` reports a loss.

#[cfg(target_os = "linux")]
mod control;
#[cfg(target_os = "linux")]
mod front;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod system_log;
#[cfg(target_os = "linux")]
mod watched;

#[cfg(target_os = "linux")]
pub(crate) use front::start;
#[cfg(target_os = "linux")]
pub(crate) use process::run;
#[cfg(target_os = "linux")]
pub(crate) use session::held_above;

use crate::failure::Failure;
use fencelock::{Client, HolderId, Owner};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is asked of a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// What it holds, and for whom.
    State,
    /// To release the lock.
    Release { key: String, holder: HolderId },
    /// To release the lock, although its process may need it.
    Break { key: String, holder: HolderId },
}

/// Asks the keeper of this hold; `None` if there is none on this machine.
pub(crate) async fn ask(client: &Client, holder: HolderId, request: &Request) -> Result<Option<Value>, Failure> {
    #[cfg(target_os = "linux")]
    if let Some(keepers) = control::Keepers::of(client) {
        return keepers.ask(holder, request).await;
    }
    let _ = (client, holder, request);
    Ok(None)
}

/// What the keepers of this user hold, on all backends.
pub(crate) async fn states(client: &Client) -> Vec<Value> {
    #[cfg(target_os = "linux")]
    if let Some(keepers) = control::Keepers::of(client) {
        return keepers.states().await;
    }
    let _ = client;
    Vec::new()
}

/// The process for which this owner keeps its lock: the label of a keeper begins with it. A keeper ignores TERM, and ends with that process.
pub(crate) fn watched_by(owner: &Owner) -> Option<u32> {
    owner.label()?.strip_prefix("while ")?.split_once(' ')?.0.parse().ok()
}

/// Whether a keeper names this key among its keys.
pub(crate) fn names(keys: &Value, key: &str) -> bool {
    keys.as_array().is_some_and(|keys| keys.iter().any(|held| held == key))
}

/// The first argument of the keeper. It is internal, so no help mentions it. The arguments of `acquire` are not among its own: a
/// signal to all processes whose arguments contain a word, as `pkill -f` sends it, does not reach the keeper.
const ROLE: &str = "--keep-lock";

/// Whether this process was started as a keeper.
pub(crate) fn role() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ROLE)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run() -> crate::exit::Exit {
    crate::exit::Exit::Usage
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn start(_: u32) -> Result<crate::exit::Exit, Failure> {
    let why =
        "--while-pid needs Linux, which can tell the end of a process exactly; use `fencelock run KEY -- COMMAND`";
    Err(Failure::new(crate::exit::Exit::Usage, why))
}

/// No lock is kept for a process here.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn held_above(_: &crate::plan::Plan, _: &str, _: &Client) -> Failure {
    std::future::pending().await
}
