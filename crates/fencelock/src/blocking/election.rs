use super::{ClientThread, Guard, OnThread, facade};
use crate::settings::setters;
use crate::{Error, FencingToken, Key, Leader, Observation};
use std::sync::Arc;
use std::time::Duration;

/// An election: one of many candidates leads, and the others wait in the order of their arrival. The async type is
/// [`crate::Election`].
///
/// `run_while_leader` is missing here, because a thread cannot be stopped from outside. Work in steps instead:
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let election = client.election("scheduler").value("10.0.0.7:8080");
/// let leadership = election.clone().campaign()?;
/// let mut steps = 0;
/// while leadership.is_leader() && steps < 3 {
///     steps += 1; // a step of the work, under leadership.term()
/// }
/// leadership.resign()?;
/// # Ok::<(), fencelock::Error>(())
/// ```
pub type Election = OnThread<crate::Election>;

impl Election {
    facade! { Election:
        /// Sets the value that this candidate publishes while it leads, such as its address: 1 to 128 bytes.
        pub fn value(self, value: impl Into<String>) -> Self;
    }

    setters!(Election in inner.lock.settings);

    facade! { Election:
        /// Checks the name and the settings without a request.
        pub fn check(&self) -> Result<(), Error>;

        /// Waits until this candidate leads.
        pub async fn campaign(self) -> Result<Leadership, Error>;

        /// The current leader; `None` if there is none, or if another program has taken the key.
        pub async fn leader(&self) -> Result<Option<Leader>, Error>;
    }

    /// Watches who leads, without being a candidate.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid name.
    pub fn observe(&self) -> Result<Observer, Error> {
        let OnThread { inner, thread } = self.clone().call(async move |election| election.observe())?;
        Ok(Observer { name: inner.name().clone(), inner: Some(inner), thread })
    }
}

/// The term of an elected leader: the [`Guard`] of the lock of its election, renewed until it is dropped. Dropping it resigns in the
/// background. The async type is [`crate::Leadership`].
pub type Leadership = Guard<crate::Term>;

impl Leadership {
    /// The name of the election.
    pub fn name(&self) -> &Key {
        self.key()
    }

    /// The term, which is greater than those of all previous leaders. Send it with every write, and let the receiver reject
    /// smaller ones; see [`FencingToken`].
    pub fn term(&self) -> FencingToken {
        self.fencing_token()
    }

    /// Whether this candidate leads. Once `false`, it stays `false`. Sends no request.
    pub fn is_leader(&self) -> bool {
        self.is_held()
    }

    /// Ends the term, and waits for the confirmation of the backend. If the backend has a queue, the same request hands the
    /// leadership to the next candidate. A term that was already over is an error.
    ///
    /// # Errors
    /// See [`Guard::release`].
    pub fn resign(self) -> Result<(), Error> {
        self.release()
    }
}

/// Watches the leader of an election. The async type is [`crate::Observer`]. As an iterator it ends when the client is closed.
#[must_use = "an observer sends requests only while a call waits"]
#[derive(Debug)]
pub struct Observer {
    name: Key,
    /// `None` while the client's thread uses it.
    inner: Option<crate::Observer>,
    thread: Arc<ClientThread>,
}

impl Observer {
    /// The name of the election.
    pub const fn name(&self) -> &Key {
        &self.name
    }

    /// Waits at most this long for the next change. `None` if there was none, and after the client was closed.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn next_within(&mut self, span: Duration) -> Option<Observation> {
        self.wait_for_change(Some(span))
    }

    fn wait_for_change(&mut self, span: Option<Duration>) -> Option<Observation> {
        let mut observer = self.inner.take()?;
        let (observer, change) = self.thread.wait(async move {
            let change = match span {
                Some(span) => tokio::time::timeout(span, observer.next()).await.unwrap_or_default(),
                None => observer.next().await,
            };
            (observer, change)
        })?;
        self.inner = Some(observer);
        change
    }
}

impl Iterator for Observer {
    type Item = Observation;

    /// Waits for the next change; the first call returns the current state.
    fn next(&mut self) -> Option<Observation> {
        self.wait_for_change(None)
    }
}
