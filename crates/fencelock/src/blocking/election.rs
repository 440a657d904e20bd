use super::{Engine, Guard, Held};
use crate::{Error, FencingToken, Key, Leader, LossReason, Observation, Released, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// An election: one of many candidates leads, and the others wait in the order of their arrival. The async twin is
/// [`crate::Election`].
///
/// `run_while_leader` is missing here, because a thread cannot be ended from outside. Work in steps instead:
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
#[must_use = "an election does nothing until a candidate campaigns or an observer looks"]
#[derive(Debug, Clone)]
pub struct Election {
    inner: crate::Election,
    engine: Arc<Engine>,
}

impl Election {
    pub(super) const fn new(inner: crate::Election, engine: Arc<Engine>) -> Self {
        Self { inner, engine }
    }

    /// What this candidate publishes while it leads, such as its address: 1 to 128 bytes, without control characters,
    /// line breaks, and marks that change the direction of writing. All clients that can see the lock see the value.
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.inner = self.inner.value(value);
        self
    }

    /// How long a term outlives a leader that dies: 10 ms to 24 h, 30 s unless set. The leader renews it every third of that.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.inner = self.inner.ttl(ttl);
        self
    }

    /// Campaigns at most this long; without it, as long as it takes. Zero asks once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.inner = self.inner.wait(wait);
        self
    }

    /// Calls `callback` after each request of a campaign that the place did not answer, on the client's thread. It must return
    /// quickly.
    pub fn on_trouble(mut self, callback: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_trouble(callback);
        self
    }

    /// Checks the name and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for a name, value or TTL that cannot be used.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the place has not answered for as long as the TTL, [`Error::NotReplicated`],
    /// [`Error::Config`], [`Error::Closed`]; [`Error::Busy`] when [`Election::wait`] is over.
    pub fn campaign(self) -> Result<Leadership, Error> {
        let Self { inner, engine } = self;
        let leadership = engine.get(inner.campaign())?;
        Ok(Leadership { guard: Guard::new(leadership.into_guard(), engine) })
    }

    /// The current leader; `None` without one, or if another program has taken the key. The answer may be out of date when
    /// it arrives.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that cannot be used, [`Error::Unreachable`].
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        let election = self.inner.clone();
        self.engine.get(async move { election.leader().await })
    }

    /// Watches who leads. It only reads, and it is no candidate.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that cannot be used.
    pub fn observe(&self) -> Result<Observer, Error> {
        let (election, engine) = (self.inner.clone(), Arc::clone(&self.engine));
        let inner = engine.get(async move { election.observe() })?;
        Ok(Observer { name: inner.name().clone(), inner: Some(inner), engine })
    }
}

/// The term of an elected leader. It is renewed for as long as it lives, and dropping it resigns in the background. The
/// async twin is [`crate::Leadership`].
#[must_use = "the candidate resigns when its leadership is dropped"]
#[derive(Debug)]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
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

    /// Waits until the leadership is lost, and says why.
    pub fn lost(&self) -> LossReason {
        self.guard.lost()
    }

    /// Waits at most this long for the loss; `None` if the candidate still leads then.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        self.guard.lost_within(within)
    }

    /// A view of the lock, to pass to the work of the leader.
    pub fn held(&self) -> Held {
        self.guard.held()
    }

    /// Ends the term, and waits until the place confirms it. Where the place has a queue, the same request hands the
    /// leadership to the next candidate. A term that was over before is no error: the answer says so.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the place did not answer a few tries. The release then goes on in the background until
    /// the lease would have ended.
    pub fn resign(self) -> Result<Released, Error> {
        self.guard.release()
    }
}

/// Watches who leads an election. The async twin is [`crate::Observer`]. As an iterator it ends when the client is closed.
#[must_use = "an observer asks only while it is asked"]
#[derive(Debug)]
pub struct Observer {
    name: Key,
    /// Away while the client's thread asks.
    inner: Option<crate::Observer>,
    engine: Arc<Engine>,
}

impl Observer {
    /// The name of the election.
    pub const fn name(&self) -> &Key {
        &self.name
    }

    /// Waits at most this long for the next change. `None` if there was none, and after the client was closed.
    pub fn next_within(&mut self, span: Duration) -> Option<Observation> {
        self.ask(Some(span))
    }

    fn ask(&mut self, span: Option<Duration>) -> Option<Observation> {
        let mut observer = self.inner.take()?;
        let (observer, told) = self.engine.run(async move {
            let told = match span {
                Some(span) => tokio::time::timeout(span, observer.next()).await.unwrap_or_default(),
                None => observer.next().await,
            };
            (observer, told)
        })?;
        self.inner = Some(observer);
        told
    }
}

impl Iterator for Observer {
    type Item = Observation;

    /// Waits for the next change; the first call returns what is so now.
    fn next(&mut self) -> Option<Observation> {
        self.ask(None)
    }
}
