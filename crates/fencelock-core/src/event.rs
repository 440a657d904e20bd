use crate::{HolderId, Key, TokenBlock};
use std::fmt::Debug;
use std::time::Duration;

/// A hint from a backend. It may come late, twice or never; a claim or a renewal tells the truth. So one of a kind that a
/// listener does not know may be ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The key was handed to this waiter, after the backend had last answered it.
    ///
    /// It is the one hint that carries a fact. If the first of `tokens` is greater than the `last_fence` of the waiter's last
    /// answered claim, the key is its own for at least `claim_ttl` from the sending of that claim, unless a claim answered
    /// meanwhile says [`crate::Acquire::Gone`]. Older `tokens` are those of a hand-off that has ended since. (Blocks
    /// do not overlap and `last_fence` ends one, so it makes no difference which of them is compared.)
    ///
    /// The searches in `tests/engine/hand_off.rs` show that this suffices, and what breaks without each part of it.
    Handed {
        /// What was handed.
        key: Key,
        /// To whom.
        holder: HolderId,
        /// The tokens of the grant.
        tokens: TokenBlock,
        /// The short lease of a hand-off, which a renewal makes a full one. Zero where a grant counts only after more than
        /// the hand-off: then the message proves nothing, and the waiter must ask.
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
pub trait Listener: Debug + Send + Sync {
    /// Called for every event, from any thread.
    fn event(&self, event: &Event);
}
