use crate::{HolderId, Key, TokenBlock};
use std::fmt::Debug;
use std::time::Duration;

/// A hint from a backend. It may be late, duplicated or lost; a claim or a renewal returns the reliable state. So a listener
/// may ignore unknown events.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The key was handed to this waiter, after the last answer of the backend.
    ///
    /// This is the only event that proves something. If the first of `tokens` is greater than the `last_fence` of the last
    /// answered claim of the waiter, the waiter holds the key for at least `claim_ttl` from the sending of that claim,
    /// unless a later answer is [`crate::Acquire::Gone`]. Older `tokens` belong to an earlier hand-off. (Blocks do not
    /// overlap and `last_fence` ends one, so any token of the block may be compared.)
    ///
    /// The searches in `tests/engine/hand_off.rs` show that this is sufficient, and that each condition is necessary.
    Handed {
        /// The key.
        key: Key,
        /// The receiver.
        holder: HolderId,
        /// The tokens of the grant.
        tokens: TokenBlock,
        /// The short lease of a hand-off, which a renewal extends to a full one. Zero if a grant needs more than
        /// the hand-off: then the message proves nothing, and the waiter must poll.
        claim_ttl: Duration,
    },
    /// The key was released, expired, or was taken: waiters should poll, and a holder should check.
    Changed {
        /// The key.
        key: Key,
    },
    /// A client entered the queue of a key after the last renewal of this client. Sent only by backends that announce waiters
    /// ([`crate::Backend::announces_waiters`]), at most once for each renewal: a client that keeps the lease for its next
    /// task should release it.
    Queued {
        /// The key.
        key: Key,
    },
    /// Events may have been lost: all waiters and holders should check.
    Reset,
}

/// Receives the events of a backend. It must return immediately: it runs on the task that reads the socket.
pub trait Listener: Debug + Send + Sync {
    /// Called for every event, from any thread.
    fn event(&self, event: &Event);
}
