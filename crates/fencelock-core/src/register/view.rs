use super::{Hold, Record};
use crate::{Expiry, FencingToken, Foreign, HolderId, HolderInfo, Holding, Key, Liveness, Occupant, Occupied, Unknown};
use std::time::Duration;

/// What is to be done about a record.
#[derive(Debug)]
pub enum Decision<T> {
    /// The answer.
    Done(Result<T, Unknown>),
    /// To replace what is stored.
    Write {
        /// The new record. The update adds a nonce.
        record: Record,
        /// The answer as soon as it is written.
        answer: T,
    },
}

impl<T> Decision<T> {
    /// The same with another answer.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Decision<U> {
        match self {
            Self::Done(answer) => Decision::Done(answer.map(map)),
            Self::Write { record, answer } => Decision::Write { record, answer: map(answer) },
        }
    }
}

/// What a decision depends on.
#[derive(Debug)]
pub struct View<'a> {
    /// The key.
    pub key: &'a Key,
    /// The backend, for messages.
    pub name: &'a str,
    /// What is stored; of a register that does not exist yet, a record without a hold.
    pub record: &'a Record,
    /// The state of the key.
    pub current: Current<'a>,
    /// A lower bound of the time of the store, in microseconds since 1970; `None` if it tells none.
    pub time: Option<u64>,
    /// When it was written, as in [`Reading::modified`](super::Reading::modified); `None` if it was not read.
    pub modified: Option<u64>,
    /// A claim of the holder of this request may still be executed on what is stored.
    pub claim_may_arrive: bool,
}

/// The state of a key.
#[derive(Debug, Clone, Copy)]
pub enum Current<'a> {
    /// Nobody holds it.
    Free,
    /// It is held, for this time at least unless it is released or proved to be over earlier.
    Held(&'a Hold, Duration),
    /// Its lease has ended, and nobody has taken the key.
    Over(&'a Hold),
    /// Something else is stored. It never ends by itself, and nothing is written over it.
    Foreign(&'a Foreign),
}

impl View<'_> {
    /// Writes the record with another hold.
    pub(super) fn hold<T>(&self, hold: Option<Hold>, answer: T) -> Decision<T> {
        Decision::Write { record: Record { hold, ..self.record.clone() }, answer }
    }

    /// The hold, if it is that of this holder.
    pub(super) fn hold_of(&self, holder: HolderId) -> Option<&Hold> {
        match self.current {
            Current::Held(hold, _) if hold.holder.id == holder => Some(hold),
            _ => None,
        }
    }

    /// This holder does not hold the key, which nobody holds. If a request of it that was not answered can still be executed on this
    /// record, the record is replaced first.
    pub(super) fn void_claims<T>(&self, holder: HolderId, answer: T) -> Decision<T> {
        let may_be_renewed = matches!(self.current, Current::Over(hold) if hold.holder.id == holder);
        if may_be_renewed || self.claim_may_arrive { self.hold(None, answer) } else { Decision::Done(Ok(answer)) }
    }

    /// The holder of the key, and for how long at least.
    pub(super) fn occupied(&self) -> Option<Occupied> {
        match self.current {
            Current::Held(hold, left) => {
                let occupied = Occupied::new(Occupant::Holder(hold.holder.clone()), Expiry::In(left));
                let time = self.time.filter(|_| hold.since_micros > 0);
                let held_for = time.map(|time| Duration::from_micros(time.saturating_sub(hold.since_micros)));
                Some(occupied.with_held_for(held_for))
            }
            Current::Foreign(what) => Some(Occupied::new(Occupant::Foreign(what.clone()), Expiry::Never)),
            Current::Free | Current::Over(_) => None,
        }
    }

    /// The current hold.
    pub(super) fn holding(&self) -> Option<Holding> {
        let Occupied { holders, expiry, held_for } = self.occupied()?;
        let info = HolderInfo::new(holders.into_first(), expiry).with_held_for(held_for);
        let Current::Held(hold, _) = self.current else { return Some(Holding::new(self.key.clone(), info)) };
        let written = self.time.zip(self.modified);
        let alive = written.map(|(time, modified)| {
            Liveness::of_lease(Duration::from_micros(time.saturating_sub(modified)), hold.ttl.get())
        });
        let fence = FencingToken::new(self.record.token).ok();
        Some(Holding::new(self.key.clone(), info.with_alive(alive).with_fence(fence)))
    }
}
