use crate::{FencingToken, HolderId, Key};
use std::fmt::Debug;
use std::time::Duration;

/// A hint from a backend. It may come late, twice or never; a claim or a renewal tells the truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The key was handed to this waiter, after the backend had last answered it.
    ///
    /// It is the one hint that carries a fact. If `fence` is greater than the `last_fence` of the waiter's last answered
    /// claim, the key is its own for at least `claim_ttl` from the sending of that claim, unless a claim answered
    /// meanwhile says [`crate::Acquire::Gone`]. An older `fence` is that of a hand-off that has ended since.
    ///
    /// The models in `tests/handoff_model` show that this suffices, and what breaks without each part of it.
    Handed {
        /// What was handed.
        key: Key,
        /// To whom.
        holder: HolderId,
        /// The token of the grant.
        fence: FencingToken,
        /// The short lease of a hand-off, which a renewal makes a full one.
        claim_ttl: Duration,
    },
    /// The key was freed, expired, or is another's: waiters should poll, a holder should look.
    Changed {
        /// Which.
        key: Key,
    },
    /// Events may have been missed: everybody should look.
    Reset,
}

/// Takes the events of a backend. It must return at once: it runs where the backend reads its socket.
pub trait Sink: Debug + Send + Sync {
    /// Called for every event, from any thread.
    fn event(&self, event: &Event);
}
