//! The process that a keeper keeps locks for, and its holds.

use super::Kept;
use super::above::conflict;
use super::system_log::warn;
use super::watched::Watched;
use crate::args::OnLost;
use crate::exit::Exit;
use crate::paths::is_part;
use crate::serve::{ErrorReply, Hold, Holds, Wanted};
use fencelock::{Guard, HolderId, Mode};
use rustix::process::Signal;
use std::sync::Arc;
use tokio::sync::watch;

/// The process that a keeper keeps locks for.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) watched: Watched,
    /// Of the URL of the client.
    pub(super) options: String,
    /// What its owners hold.
    pub(crate) changes: watch::Sender<()>,
}

impl Process {
    /// Refuses other options of the URL: they may say what a lock is worth, such as acks=1.
    pub(crate) fn check_options(&self, wanted: &Wanted) -> Result<(), ErrorReply> {
        let here = wanted.asked.as_ref().map_or("", |asked| &asked.options);
        if here == self.options {
            return Ok(());
        }
        let shown = |options: &str| if options.is_empty() { "none".to_owned() } else { options.to_owned() };
        let (theirs, here, Watched { pid, command, .. }) = (shown(&self.options), shown(here), &self.watched);
        let why = format!(
            "the locks of process {pid} ({command}) are kept with other options of the URL: {theirs}, and here {here}; give the same \
             to all scripts of a session"
        );
        Err(ErrorReply::of(Exit::Usage, why))
    }

    /// Refuses what an owner would wait for in vain: another request of it has the lock.
    pub(crate) fn check(&self, holds: &Holds, wanted: &Wanted) -> Result<(), ErrorReply> {
        let Watched { pid, command, .. } = &self.watched;
        let own = holds.values().filter(|hold| hold.wanted.owner == wanted.owner && hold.remaining().is_ok());
        let kept: Vec<_> = own.map(|hold| self.kept(hold)).collect();
        let Some((_, key)) = conflict(&kept.iter().collect::<Vec<_>>(), &wanted.plan) else { return Ok(()) };
        let owner = wanted.owner.as_deref().filter(|owner| !owner.is_empty());
        let whose = owner.map(|owner| format!(", owner {owner}")).unwrap_or_default();
        let why = format!(
            "{key} is already held for process {pid} ({command}{whose}), until it ends, by a request with other options: waiting \
             would never end; `fencelock release` releases it"
        );
        Err(ErrorReply::of(Exit::Usage, why))
    }

    /// What its owner has of the keys of a path, so that it need not wait for them: others may be before it in the queue. If it has a path
    /// above exclusively, these are all locks of that.
    pub(crate) fn has(holds: &Holds, wanted: &Wanted) -> Result<Vec<Arc<Guard>>, ErrorReply> {
        let mut has = Vec::new();
        for lock in wanted.plan.of_path().unwrap_or_default() {
            let own = holds.values().filter(|hold| hold.wanted.owner == wanted.owner && hold.remaining().is_ok());
            let all = own.filter_map(|hold| Some((hold, hold.guards.as_ref()?.parts())));
            let parts = all.flat_map(|(hold, parts)| parts.iter().map(move |guard| (hold, parts, guard)));
            let parts: Vec<_> = parts.filter(|(.., guard)| is_part(&lock, guard.key().as_str())).collect();
            if let Some((_, all, _)) = parts.iter().find(|(.., guard)| guard.mode() == Mode::Exclusive) {
                return Ok(all.to_vec());
            } else if let Some((.., guard)) = parts.iter().find(|(.., guard)| guard.mode().same_class(lock.1)) {
                has.push(Arc::clone(guard));
            } else if let Some((hold, ..)) = parts.first() {
                let (path, held) = (&wanted.plan.keys[0], &hold.wanted.plan.keys[0]);
                let why = "another owner may wait between both, so a lock that is held cannot grow: release";
                let why = format!("{path}: its owner has {held} already; {why} {held} first");
                return Err(ErrorReply::of(Exit::Usage, why));
            }
        }
        Ok(has)
    }

    /// Why a request for a path must not wait any more: its owner has one above by now, or below.
    pub(crate) fn overtaken(holds: &Holds, wanted: &Wanted) -> Option<ErrorReply> {
        let has = Self::has(holds, wanted);
        let is_above = has.as_ref().is_ok_and(|has| has.iter().any(|guard| guard.mode() == Mode::Exclusive));
        let why = || format!("{}: its owner has a path above it by now: ask again", wanted.plan.keys[0]);
        has.err().or_else(|| is_above.then(|| ErrorReply::of(Exit::Busy, why())))
    }

    pub(super) fn kept(&self, hold: &Hold) -> Kept {
        Kept {
            owner: hold.wanted.owner.clone().unwrap_or_default(),
            pid: self.watched.pid,
            command: self.watched.command.clone(),
            label: hold.wanted.asked.as_ref().and_then(|asked| asked.label.clone()),
            keys: hold.kept.as_ref().map(|kept| kept.keys.clone()).unwrap_or_default(),
            tree: hold.wanted.plan.tree.clone(),
            mode: hold.wanted.plan.mode,
            lost: hold.lost.as_ref().map(|lost| lost.1.clone()),
        }
    }
}

impl Hold {
    /// Whether it is the hold that was answered with this holder: one of a path may have other keys in common with others.
    pub(crate) fn is_by(&self, key: &str, holder: HolderId) -> bool {
        let last = self.kept.as_ref().and_then(|kept| kept.holders.last());
        let tree = self.wanted.plan.tree.as_ref();
        tree.map_or_else(|| self.has(holder), |tree| tree.key() == key && last == Some(&holder))
    }

    pub(crate) fn has(&self, holder: HolderId) -> bool {
        self.kept.as_deref().is_some_and(|kept| kept.holders.contains(&holder))
    }

    /// Tells the process.
    pub(super) fn tell(&mut self, why: &str, Process { watched, .. }: &Process) {
        let Some(kept) = &mut self.kept else { return };
        let then = match self.wanted.plan.rules.on_lost {
            OnLost::Term => "sent TERM to it",
            OnLost::Warn => "it continues and may overlap the next holder",
        };
        if self.wanted.plan.rules.on_lost == OnLost::Term && !std::mem::replace(&mut kept.is_signalled, true) {
            // It may have ended.
            let _ = watched.signal(Signal::TERM);
        }
        let Watched { pid, command, .. } = watched;
        warn(&format!("{}, held for process {pid} ({command}): {why}; {then}", kept.keys.join(", ")));
    }

    /// The process learns of it before others get the lock. A lost lock is shown until the process ends.
    pub(super) fn lose(&mut self, why: String, process: &Process) {
        self.tell(&why, process);
        let keys = self.kept.as_ref().map(|kept| kept.keys.join(", ")).unwrap_or_default();
        self.lost = Some(Box::new((keys, why)));
    }
}
