//! The keeper: a detached process of `acquire --while-pid`, which holds the locks of a session on one backend: those of one process,
//! until it ends.
//!
//! The first `acquire` of a session starts it, and passes it the arguments and a descriptor of the process. From then on it serves one
//! request for each connection, a line of JSON that is answered with lines: requests of its session, and of everybody who asks what it
//! holds. It ends with the process, or when it holds nothing and nobody asks: it has a session of its own, no standard streams, and
//! ignores the signals of a log-out. A request that nobody waits for any more leaves nothing behind.
//!
//! `socket` is how it is found, and the lines. `front` is the side of `acquire`. `process` starts and serves, `session` has the locks of
//! all owners, keeps each, and reports a loss. `above` finds the locks of processes that a command runs under. `watched` is the process.

#[cfg(target_os = "linux")]
mod above;
#[cfg(target_os = "linux")]
mod front;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod watched;

#[cfg(target_os = "linux")]
pub(crate) use above::held_above;
#[cfg(target_os = "linux")]
pub(crate) use front::{acquire, release_all};
#[cfg(target_os = "linux")]
pub(crate) use process::run;
#[cfg(target_os = "linux")]
pub(crate) use socket::{ask, exist, holds, named};

use crate::exit::Failure;
use crate::plan::Plan;
use crate::report::Reporter;
use fencelock::{Client, HolderId, Mode};
use serde::{Deserialize, Serialize};

/// What is asked of a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no keeper"))]
pub(crate) enum Request {
    /// Which locks it has, and for whom: a list of [`Kept`].
    Holds,
    /// To acquire locks for its process.
    Acquire(Box<Wanted>),
    /// To release the locks of a request.
    Release { key: String, holder: HolderId },
    /// To release the locks of a request, although the process may need them.
    Break { key: String, holder: HolderId },
    /// To release all locks of an owner: a list of [`Done`].
    ReleaseAll { owner: String },
}

/// Locks that are to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// Whose locks they are, among those of one process. Empty if only the process counts.
    pub(crate) owner: String,
    /// Of the URL.
    pub(crate) options: String,
    pub(crate) plan: Plan,
    /// As the user gave it. That of the plan also names the owner.
    pub(crate) label: Option<String>,
    pub(crate) report: Reporter,
    /// Whether progress is drawn where the request comes from.
    pub(crate) draws: bool,
}

/// Locks that are kept, or were lost while their process lives.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) owner: String,
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) label: Option<String>,
    /// That of a slot has its number.
    pub(crate) keys: Vec<String>,
    #[serde(with = "crate::mode::text")]
    pub(crate) mode: Mode,
    pub(crate) lost: Option<String>,
}

/// What became of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) keys: Vec<String>,
    /// Unknown if the release is not confirmed.
    pub(crate) released: Option<bool>,
    pub(crate) why: Option<String>,
}

#[cfg(target_os = "linux")]
impl Done {
    fn refused(keys: Vec<String>, why: &str) -> Self {
        Self { keys, released: Some(false), why: Some(why.to_owned()) }
    }
}

/// Locks that a command waits for.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no keeper"))]
pub(crate) struct Awaited<'a> {
    pub(crate) keys: &'a [String],
    pub(crate) mode: Mode,
    pub(crate) slots: Option<u32>,
    /// Also the locks that are slots of a key.
    pub(crate) with_slots: bool,
    pub(crate) nested_ok: bool,
}

impl<'a> From<&'a Plan> for Awaited<'a> {
    fn from(plan: &'a Plan) -> Self {
        Self { keys: &plan.keys, mode: plan.mode, slots: plan.slots, with_slots: false, nested_ok: plan.nested_ok }
    }
}

/// Asks the keeper that has `key` by this holder; `None` if there is none on this machine.
pub(crate) async fn ask_holder(
    client: &Client,
    backend: &str,
    (key, holder): (&str, HolderId),
    request: &Request,
) -> Result<Option<serde_json::Value>, Failure> {
    if !exist(backend) {
        return Ok(None);
    }
    let found = client.inspect(key).await?;
    let by = |hold: &fencelock::HolderInfo| match &hold.occupant {
        fencelock::Occupant::Holder(found) if found.id == holder => Some(found.owner.clone()),
        _ => None,
    };
    match found.iter().flat_map(|found| found.holders.iter()).find_map(by) {
        Some(owner) => ask(backend, &owner, request).await,
        None => Ok(None),
    }
}

/// The first argument of the keeper. It is internal, so no help mentions it. The arguments of `acquire` are not among its own: a
/// signal to all processes whose arguments contain a word, as `pkill -f` sends it, does not reach the keeper.
const ROLE: &str = "--keep-lock";

/// Whether this process was started as a keeper.
pub(crate) fn role() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ROLE)
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{Awaited, Done, Kept, Request};
    use crate::args::{Acquire, Release};
    use crate::context::Context;
    use crate::exit::Exit;
    use crate::exit::Failure;
    use fencelock::{Client, Owner};
    use serde_json::Value;

    pub(crate) fn run() -> Exit {
        Exit::Usage
    }

    pub(crate) async fn acquire(_: &Acquire, _: u32, _: &Context) -> Result<Exit, Failure> {
        Err(refused())
    }

    pub(crate) async fn release_all(_: &Release, _: u32, _: &Context) -> Result<Vec<Done>, Failure> {
        Err(refused())
    }

    fn refused() -> Failure {
        let why =
            "--while-pid needs Linux, which can tell the end of a process exactly; use `fencelock run KEY -- COMMAND`";
        Failure::new(Exit::Usage, why)
    }

    /// No lock is kept for a process here.
    pub(crate) async fn held_above(_: Awaited<'_>, _: &str, _: &Client) -> Failure {
        std::future::pending().await
    }

    pub(crate) fn exist(_: &str) -> bool {
        false
    }

    pub(crate) async fn ask(_: &str, _: &Owner, _: &Request) -> Result<Option<Value>, Failure> {
        Ok(None)
    }

    pub(crate) async fn holds(_: &str) -> Vec<Kept> {
        Vec::new()
    }

    pub(crate) fn named(_: &Owner) -> Option<(i32, i32)> {
        None
    }
}
#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{acquire, ask, exist, held_above, holds, named, release_all, run};
