//! What a world consists of.

use crate::setting::Setting;
use fencelock_core::once::{OnceJob, Window};
use fencelock_core::{Completion, CompletionRead, NodeVote};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) job: Option<OnceJob>,
    pub(crate) token: u64,
    pub(crate) held: bool,
    #[allow(clippy::option_option, reason = "no reply yet, and no reply at all")]
    pub(crate) replies: Vec<Option<Option<CompletionRead>>>,
    pub(crate) granted: Vec<bool>,
    pub(crate) node_votes: Vec<Option<NodeVote>>,
    pub(crate) sent: bool,
    pub(crate) ran: bool,
    /// It acquired the lock after so many reports.
    pub(crate) after_reports: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Node {
    pub(crate) holder: Option<usize>,
    pub(crate) stored: Option<Completion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) from: usize,
    /// Later attempts of a client do not take the replies for theirs.
    pub(crate) token: u64,
    pub(crate) node: usize,
    pub(crate) completion: Completion,
    pub(crate) restores: bool,
}

/// Something that a client knows about the work: that its run counts, or that the work was reported as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Fact {
    /// When that run got the lock.
    pub(crate) granted: u64,
    /// Until when the client relies on it.
    pub(crate) until: u64,
}

pub(crate) fn window_of(who: usize, setting: &Setting) -> Window {
    Window::new(Duration::from_secs(setting.windows[who] * setting.step)).unwrap()
}

pub(crate) fn kept_until(until_micros: u64) -> u64 {
    until_micros + u64::try_from(Completion::KEPT.as_micros()).unwrap()
}

/// A later run keeps only its own end.
pub(crate) fn later(one: Completion, other: Completion, now: u64) -> Completion {
    if other.token > one.token { other } else { one.merge(other, now) }
}
