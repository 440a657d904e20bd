use crate::error::Error;
use crate::guard::{Guard, Released};
use fencelock_core::{FencingToken, Key, LossReason};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The term of an elected leader: the [`Guard`] of the lock of its election, renewed until it is dropped.
///
/// [`Leadership::resign`] waits for the confirmation of the backend. Dropping the leadership resigns in the background.
pub type Leadership = Guard<Term>;

/// The term of a leader, which its guard has: [`Leadership::term`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term(());

impl Leadership {
    pub(super) fn of(guard: Guard) -> Self {
        guard.with(Term(()))
    }

    /// The name of the election.
    pub fn name(&self) -> &Key {
        self.key()
    }

    /// The term, which is greater than those of all previous leaders. Send it with every write, and let the receiver
    /// reject smaller ones; see [`FencingToken`].
    pub fn term(&self) -> FencingToken {
        self.fencing_token()
    }

    /// Whether this candidate leads. Once `false`, it stays `false`. Sends no request.
    pub fn is_leader(&self) -> bool {
        self.is_held()
    }

    /// Ends the term, and waits for the confirmation of the backend. If the backend has a queue, the same request hands the
    /// leadership to the next candidate.
    ///
    /// If the term was already over, this is reported as a result, not as an error, and the current leader is not affected.
    ///
    /// # Errors
    /// See [`Guard::release`].
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn resign(self) -> Result<Released, Error> {
        self.release().await
    }
}

/// Polls `body` until it completes, but never after the end of the term: after a pause of the thread, the loss is
/// checked first.
pub(super) async fn while_leading<B: Future>(leadership: &Leadership, body: B) -> Result<B::Output, LossReason> {
    let (mut lost, mut body) = (pin!(leadership.lost()), pin!(body));
    poll_fn(|context| {
        if let Poll::Ready(reason) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(reason));
        }
        match leadership.check() {
            Err(Error::Lost { reason, .. }) => Poll::Ready(Err(reason)),
            _ => body.as_mut().poll(context).map(Ok),
        }
    })
    .await
}
