//! What a world consists of.

use crate::setting::Setting;
use fencelock_core::once::{Runs, Window, judge};
use fencelock_core::{Completion, CompletionRead, CountedSuccess, FencingToken, NodeVote, Owner, WriteCompletion};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) job: Option<Job>,
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

/// What a client does next, in the order of `OncePerWindow::begin` and `OnceRun::succeed`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Read,
    Acquire,
    ReadAgain,
    Write,
    Run,
    Confirm(CountedSuccess),
    Done,
    AlreadyDone(CountedSuccess),
    GiveUp,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    window: Window,
    runs: Runs,
    pub(crate) step: Step,
    pub(crate) completion: Option<Completion>,
}

impl Job {
    pub(crate) fn new(who: usize, setting: &Setting) -> Self {
        Self { window: window_of(who, setting), runs: setting.runs, step: Step::Read, completion: None }
    }

    /// `token` is that of the lock, if it is held.
    pub(crate) fn on_read(&mut self, read: &CompletionRead, token: u64, owner: Owner) {
        let (done, now) = (judge(Some(self.window), read).done, read.now_micros);
        self.step = match (done, &self.step) {
            (Some(done), _) => Step::Confirm(done),
            (None, Step::ReadAgain) => {
                let token = FencingToken::new(token).unwrap();
                self.completion = Some(Completion::new(self.window.end_of(now), token, now, owner));
                if self.runs == Runs::Start { Step::Write } else { Step::Run }
            }
            (None, _) => Step::Acquire,
        };
    }

    pub(crate) fn on_unread(&mut self) {
        self.step = if self.step == Step::Read { Step::Acquire } else { Step::GiveUp };
    }

    pub(crate) fn on_confirmed(&mut self) {
        if let Step::Confirm(done) = &self.step {
            self.step = Step::AlreadyDone(done.clone());
        }
    }

    pub(crate) fn on_written(&mut self, reply: WriteCompletion, is_held: bool) {
        self.step = match self.runs {
            _ if !reply.counts(is_held) => Step::GiveUp,
            Runs::Start => Step::Run,
            _ => Step::Done,
        };
    }

    pub(crate) fn on_success(&mut self) {
        self.step = if self.runs == Runs::Start { Step::Done } else { Step::Write };
    }

    pub(crate) fn on_failure(&mut self) {
        self.step = Step::GiveUp;
    }
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
