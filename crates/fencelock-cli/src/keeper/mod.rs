//! The keeper: a detached process of `acquire --while-pid`, which holds the locks of a session on one backend: those of one process,
//! until it ends.
//!
//! The first `acquire` of a session starts it, and passes it the arguments and a descriptor of the process. From then on it serves, as
//! `serve` does, a session that ends with the process instead of a connection: a lock whose answer was delivered stays when the
//! connection ends. It ends when it holds nothing and nobody asks: it has a session of its own, no standard streams, and ignores the
//! signals of a log-out. A request that nobody waits for any more leaves nothing behind.
//!
//! `socket` is how it is found and asked. `front` is the side of `acquire`. `process` starts, `session` keeps the locks of all owners,
//! and reports a loss; `asked` and `owner` are whom they are for. `above` finds the locks of processes that a command runs under. `watched` is the process.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems have no keepers, so none is found"))]

mod above;
mod asked;
mod front;
mod owner;
#[cfg(target_os = "linux")]
mod process;
mod session;
mod socket;
mod system_log;
mod watched;

pub(crate) use above::held_above;
pub(crate) use asked::{Asked, Keeping, Shows};
pub(crate) use front::{acquire, release_all};
pub(crate) use owner::Process;
#[cfg(target_os = "linux")]
pub(crate) use process::run;
pub(crate) use session::{Ending, release, watch};
pub(crate) use socket::{ask, holds, is_of, named};
pub(crate) use watched::{End, descriptor_of};

use crate::exit::Failure;
use crate::serve::Wanted;
use fencelock::{Client, HolderId, Mode, TreePath};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is asked of a keeper: a method of the protocol of `serve`, and its params.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Which locks it has, and for whom: a list of [`Kept`].
    Holds,
    /// To acquire locks for its process.
    Acquire(Box<Wanted>),
    /// To keep what this connection was answered, after its end.
    Keep,
    /// Not to keep it: a list of [`Done`].
    GiveBack,
    /// To release the locks of a request: a list of one [`Done`], or none.
    Release { key: String, holder: HolderId },
    /// The same by somebody else, although the process may need them.
    Break { key: String, holder: HolderId, by: String },
    /// To release all locks of an owner, or that of this path: a list of [`Done`].
    ReleaseAll { owner: String, tree: Option<TreePath> },
}

/// Locks that are kept, or were lost while their process lives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) owner: String,
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) label: Option<String>,
    /// That of a slot has its number.
    pub(crate) keys: Vec<String>,
    pub(crate) tree: Option<TreePath>,
    #[serde(with = "crate::mode::text")]
    pub(crate) mode: Mode,
    pub(crate) lost: Option<String>,
}

impl Kept {
    /// Its keys with their modes.
    fn locks(&self) -> Vec<(String, Mode)> {
        let of =
            |tree: &TreePath| tree.locks(self.mode).into_iter().map(|(key, mode)| (key.to_string(), mode)).collect();
        self.tree.as_ref().map_or_else(|| self.keys.iter().map(|key| (key.clone(), self.mode)).collect(), of)
    }
}

/// What became of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) keys: Vec<String>,
    /// Unknown if the release is not confirmed.
    pub(crate) released: Option<bool>,
    pub(crate) why: Option<String>,
}

/// Asks the keeper that has `key` by this holder; `None` if there is none on this machine.
pub(crate) async fn ask_holder<T: DeserializeOwned>(
    client: &Client,
    backend: &str,
    (key, holder): (&str, HolderId),
    request: &Request,
) -> Result<Option<T>, Failure> {
    if socket::sessions(backend).is_empty() {
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
pub(crate) fn run() -> crate::exit::Exit {
    crate::exit::Exit::Usage
}
