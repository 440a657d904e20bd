//! The session of a process: what a keeper holds for its owners, on one backend.

use super::owner::Process;
use super::{Done, Kept};
use crate::args::OnLost;
use crate::context::CLOSING;
use crate::plan::Rules;
use crate::serve::{Hold, Visible};
use fencelock::{Guard, Guards, HeldAll, Span};
use futures_util::future::join_all;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A session of a keeper.
impl Visible {
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let Some(process) = &self.process else { return Vec::new() };
        self.holds().values().map(|hold| process.kept(hold)).collect()
    }

    /// The grace period of what the process has left in its group, if a lock must not be free before that has ended.
    pub(super) fn group_ends_within(&self) -> Option<Duration> {
        let holds = self.holds();
        let held = holds.values().filter(|hold| hold.wanted.plan.end_group && hold.remaining().is_ok());
        held.map(|hold| hold.wanted.plan.rules.grace).max()
    }

    /// What this connection was answered is delivered.
    pub(crate) fn keep(&self, session: u64) {
        for kept in self.holds().values_mut().filter_map(|hold| hold.kept.as_mut()) {
            kept.is_kept |= kept.sessions.contains(&session);
        }
    }

    /// Takes the locks of these holds, whose process learns who breaks them.
    pub(crate) fn lose_to(&self, breaker: &str, is_meant: impl Fn(&Hold) -> bool) -> Vec<Ending> {
        let mut holds = self.holds();
        let broken = holds.values_mut().filter(|hold| is_meant(hold)).map(|hold| {
            if let Some(process) = self.process.as_ref().filter(|_| hold.guards.is_some()) {
                hold.lose(format!("it was broken by {breaker}"), process);
            }
            Ending::of(hold)
        });
        broken.collect()
    }

    /// Changes a hold that has its locks.
    fn with(&self, number: u64, change: impl FnOnce(&mut Hold, &Process)) {
        let mut holds = self.holds();
        let hold = holds.get_mut(&number).filter(|hold| hold.guards.is_some());
        if let (Some(hold), Some(process)) = (hold, &self.process) {
            change(hold, process);
        }
    }
}

/// Watches a hold until it ends. It is dropped with it.
pub(crate) async fn watch(visible: Arc<Visible>, number: u64, held: HeldAll, rules: Rules) {
    let ending = async {
        while held.remaining() > rules.grace {
            sleep(held.remaining().saturating_sub(rules.grace)).await;
        }
    };
    let max_hold = sleep(rules.max_hold.unwrap_or(Duration::MAX));
    let (mut max_hold, mut ending) = (pin!(max_hold), pin!(ending));
    let mut is_told = rules.on_lost == OnLost::Warn || held.remaining() == Duration::MAX;
    let loss = loop {
        tokio::select! {
            biased;
            loss = held.lost() => break Some(loss),
            () = &mut max_hold => break None,
            () = &mut ending, if !is_told => {
                is_told = true;
                visible.with(number, |hold, process| {
                    hold.tell("its lease is about to end and could not be renewed", process);
                });
            }
        }
    };
    let why = loss.as_ref().map_or_else(
        || format!("--max-hold {} is reached", Span(rules.max_hold.unwrap_or_default())),
        ToString::to_string,
    );
    visible.with(number, |hold, process| hold.lose(why, process));
    if loss.is_none() && rules.on_lost == OnLost::Term {
        // It may clean up before others get the lock.
        sleep(rules.grace).await;
    }
    visible.with(number, |hold, _| drop(hold.guards.take()));
}

/// Locks that are to be released.
pub(crate) struct Ending {
    keys: Vec<String>,
    guards: Option<Guards<Arc<Guard>>>,
    lost: Option<String>,
}

impl Ending {
    pub(crate) fn of(hold: &mut Hold) -> Self {
        let keys = hold.kept.as_ref().map(|kept| kept.keys.clone()).unwrap_or_default();
        Self { keys, guards: hold.guards.take(), lost: hold.lost.as_ref().map(|lost| lost.1.clone()) }
    }

    async fn release(self) -> Done {
        let Some(guards) = self.guards else {
            return Done { keys: self.keys, released: Some(false), why: self.lost };
        };
        let (released, why) = match timeout(CLOSING, guards.release()).await {
            Ok(Ok(())) => (Some(true), None),
            Ok(Err(error)) if error.is_lost() => {
                let why: Vec<_> = error.losses().iter().map(ToString::to_string).collect();
                (Some(false), Some(why.join(", ")))
            }
            Ok(Err(error)) => (None, Some(format!("{error:#}"))),
            Err(_) => (None, Some(format!("no reply within {}", Span(CLOSING)))),
        };
        Done { keys: self.keys, released, why }
    }
}

/// Releases all of them at the same time. If the future is dropped, the releases continue in the background.
pub(crate) async fn release(endings: Vec<Ending>) -> Vec<Done> {
    join_all(endings.into_iter().map(Ending::release)).await
}
