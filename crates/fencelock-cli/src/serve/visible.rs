use super::holds::{Hold, Holds, Wanted};
use super::message::ErrorReply;
use super::peer::Peer;
use crate::keeper::Process;
use serde_json::Value;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What others see of a session. All connections to a keeper have one: that of its process.
pub(crate) struct Visible {
    pub(crate) peer: Peer,
    /// As it names itself.
    pub(super) client: OnceLock<String>,
    holds: Mutex<Holds>,
    /// The number of the last hold.
    pub(super) last: AtomicU64,
    /// Of a keeper.
    pub(crate) process: Option<Process>,
}

impl Visible {
    pub(crate) fn new(peer: Peer, process: Option<Process>) -> Self {
        Self { peer, client: OnceLock::new(), holds: Mutex::default(), last: AtomicU64::new(0), process }
    }

    pub(crate) fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of a request for what its owner holds already.
    ///
    /// # Errors
    /// Of a keeper: to wait for it would be in vain.
    pub(super) fn own(&self, wanted: &Wanted, session: u64) -> Result<Option<Value>, ErrorReply> {
        if wanted.owner.is_none() || wanted.plan.nested_ok {
            return Ok(None);
        }
        let mut holds = self.holds();
        let is_same = |hold: &Hold| hold.wanted.is_same(wanted) && hold.remaining().is_ok();
        if let Some((number, hold)) = holds.iter_mut().find(|(_, hold)| is_same(hold)) {
            if let Some(kept) = &mut hold.kept {
                kept.sessions.insert(session);
            }
            return Ok(Some(hold.result(*number, wanted)));
        }
        let process = self.process.as_ref().filter(|_| wanted.plan.tree.is_none());
        process.map_or(Ok(()), |process| process.check(&holds, wanted))?;
        Ok(None)
    }

    /// Takes what nobody else has when a session ends.
    pub(super) fn leave(&self, session: u64) -> Vec<Hold> {
        self.take(|hold| hold.kept.as_mut().is_none_or(|kept| kept.leave(session)))
    }

    pub(crate) fn take(&self, is_meant: impl Fn(&mut Hold) -> bool) -> Vec<Hold> {
        let mut holds = self.holds();
        let meant = holds.iter_mut().filter_map(|(number, hold)| is_meant(hold).then_some(*number));
        let numbers: Vec<_> = meant.collect();
        let taken = numbers.iter().filter_map(|number| holds.remove(number)).collect();
        drop(holds);
        self.change();
        taken
    }

    /// Others of a keeper may wait for what has changed.
    pub(super) fn change(&self) {
        if let Some(process) = &self.process {
            process.changes.send_replace(());
        }
    }
}
