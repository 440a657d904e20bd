use crate::error::Error;
use crate::guard::{Guard, Held, Released};
use fencelock_core::{FencingToken, Key, LossReason};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The term of an elected leader. It is renewed for as long as it lives.
///
/// [`Leadership::resign`] waits until the place confirms it. Dropping it resigns in the background, as for a
/// [`Guard`].
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

    /// The term: greater than those of all leaders before. Send it with every write, and let the receiver refuse smaller
    /// ones; see [`FencingToken`].
    pub fn term(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// Whether this candidate leads. Once this has been `false` it stays so. It sends nothing.
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

    /// How long the term certainly lasts from now on if no renewal succeeds; zero once it is over, and
    /// [`Duration::MAX`] where holds do not end by themselves.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Waits until the leadership is lost, and says why. It returns at the end of the lease at the latest, before another
    /// candidate can lead; and at once when the place reports that the key was deleted or taken over.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }

    /// A view of the lock, to pass to the work of the leader.
    pub fn held(&self) -> Held {
        self.guard.held()
    }

    /// Ends the term, and waits until the place confirms it. Where the place has a queue, the same request hands the
    /// leadership to the next candidate.
    ///
    /// A term that was over before is no error: the answer says so, and the present leader is not touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the place did not answer a few tries. The release then goes on in the background until
    /// the lease would have ended.
    ///
    /// # Cancel safety
    /// The release goes on in the background.
    pub async fn resign(self) -> Result<Released, Error> {
        self.guard.release().await
    }
}

/// Without the holder ID, which is a proof.
impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("name", self.name())
            .field("term", &self.term())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// Polls `body` until it ends, and never after the end of the term: a thread that was stopped finds out first.
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
