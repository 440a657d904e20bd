use crate::error::Error;
use crate::guard::{Guard, Held, Released};
use fencelock_core::{FencingToken, Key, LossReason};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The term of an elected leader, which is renewed until this value is dropped.
///
/// [`Leadership::resign`] waits for the confirmation of the backend. Dropping the leadership resigns in the background,
/// like a [`Guard`].
#[must_use = "the candidate resigns when its leadership is dropped"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    pub(super) const fn new(guard: Guard) -> Self {
        Self { guard }
    }

    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }

    /// The name of the election.
    pub fn name(&self) -> &Key {
        self.guard.key()
    }

    /// The term, which is greater than those of all previous leaders. Send it with every write, and let the receiver
    /// reject smaller ones; see [`FencingToken`].
    pub fn term(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// Whether this candidate leads. Once `false`, it stays `false`. Sends no request.
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// [`Leadership::is_leader`] as a `Result`, for use with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Error::Lost`] if the term is over.
    pub fn check(&self) -> Result<(), Error> {
        self.guard.check()
    }

    /// The minimum remaining time of the term if no renewal succeeds; zero once it is over, and [`Duration::MAX`] at
    /// backends where holds do not expire.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Waits until the leadership is lost, and returns the reason. It completes at the end of the lease at the latest,
    /// before another candidate can lead, and immediately if the backend reports that the key was deleted or taken over.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It changes nothing.
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// A view of the lock, to pass to the work of the leader.
    pub fn held(&self) -> Held {
        self.guard.held()
    }

    /// Ends the term, and waits for the confirmation of the backend. If the backend has a queue, the same request hands the
    /// leadership to the next candidate.
    ///
    /// If the term was already over, this is reported as a result, not as an error, and the current leader is not affected.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the backend did not answer several tries. The release continues in the background until
    /// the lease would have expired.
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn resign(self) -> Result<Released, Error> {
        self.guard.release().await
    }
}

/// Omits the holder id, which is a proof.
impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("name", self.name())
            .field("term", &self.term())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
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
