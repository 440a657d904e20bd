//! Leader election: the leader is the holder of a lock, its term is the fencing token.

use crate::driver::ClientInner;
use crate::error::Error;
use crate::guard::{Guard, Held};
use crate::lock::{Lock, run_ended};
use crate::run::RunError;
use crate::settings::setters;
use fencelock_core::{
    Event, FencingToken, Holding, Invalid, Key, Leader, LeaderHistory, Listener, LossReason, Observation, Owner,
    Unknown,
};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// An election: one of many candidates leads, and the others wait in the order of their arrival.
///
/// The election `name` is the lock on the key `name`. So an election and a lock with the same name exclude each other,
/// [`Client::inspect`](crate::Client::inspect) shows the leader as the holder, and [`Client::evict`](crate::Client::evict)
/// ends its term. Each candidate has a lease of its own, also within one client.
///
/// ```
/// # async fn demo() -> Result<(), fencelock::Error> {
/// # use fencelock::Observation;
/// let client = fencelock::Client::connect("memory:").await?; // or file:DIR, redis://host
/// let election = client.election("scheduler").value("10.0.0.7:8080");
///
/// let leadership = election.clone().campaign().await?;
/// println!("leading in term {}", leadership.term());
///
/// let mut observer = client.election("scheduler").observe()?;
/// if let Some(Observation::Leader(leader)) = observer.next().await {
///     println!("{} leads", leader.value.unwrap_or_default());
/// }
/// leadership.resign().await?; // the next candidate leads at once
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
///
/// Invalid settings are reported by the method that uses them.
#[must_use = "an election does nothing until a candidate campaigns or an observer is awaited"]
#[derive(Debug, Clone)]
pub struct Election {
    /// Its label is the value of the candidate.
    pub(crate) lock: Lock,
}

/// The delay of the next campaign after one whose term too few replicas have confirmed.
const PAUSE: Duration = Duration::from_millis(100);

impl Election {
    /// Sets the value that this candidate publishes while it leads, such as its address: 1 to 128 bytes, without
    /// control characters, line breaks, and marks that change the direction of text. It is visible to all clients that
    /// can see the lock.
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.lock.settings.label = Some(value.into());
        self
    }

    setters!(Election in lock.settings);

    /// Checks the name and the settings without a request.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid name, value or TTL.
    pub fn check(&self) -> Result<(), Error> {
        check_value(self.lock.settings.label.as_deref())?;
        self.lock.check()?;
        Ok(())
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the backend has not answered for a TTL, [`Error::NotReplicated`], [`Error::Config`],
    /// [`Error::Closed`]; [`Error::Busy`] when the limit of [`Election::wait`] is reached.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate. If it was elected meanwhile, it resigns in the background.
    pub async fn campaign(self) -> Result<Leadership, Error> {
        check_value(self.lock.settings.label.as_deref())?;
        Ok(self.lock.await?.with(Term(())))
    }

    /// Campaigns, and runs `body` while this candidate leads. After each loss it drops the future of `body`, campaigns
    /// again, and calls `body` again. When `body` completes, the candidate resigns and the result is returned.
    ///
    /// The future of `body` is never polled after the end of the lease, so it is dropped before another candidate can
    /// lead. Work that it has started elsewhere (threads, spawned tasks) continues: pass it the term,
    /// [`Held::fencing_token`], and let the receivers of its writes reject older terms.
    ///
    /// If too few replicas confirm a term, it campaigns again.
    ///
    /// ```
    /// use fencelock::RunError;
    /// use std::convert::Infallible;
    ///
    /// # async fn schedule(_term: u64) {}
    /// # async fn demo() -> Result<(), RunError<(), Infallible>> {
    /// let client = fencelock::Client::connect("memory:").await?;
    /// client
    ///     .election("scheduler")
    ///     .value("10.0.0.7:8080")
    ///     .run_while_leader(async |held| {
    ///         schedule(held.fencing_token().get()).await;
    ///         Ok(())
    ///     })
    ///     .await
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`RunError::Body`] with the error of `body`; [`RunError::LostAfter`] with its value if the term was over when
    /// the candidate resigned; [`RunError::Lock`] with an error of [`Election::campaign`]. [`Error::NotReplicated`] only with
    /// [`Election::wait`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the future of `body`, and resigns in the background.
    pub async fn run_while_leader<T, E, F, B>(self, mut body: F) -> Result<T, RunError<T, E>>
    where
        F: FnMut(Held) -> B,
        B: Future<Output = Result<T, E>>,
    {
        let unlimited = self.lock.settings.wait.is_none();
        loop {
            let leadership = match self.clone().campaign().await {
                Err(error) if unlimited && error.is_not_replicated() => {
                    tracing::debug!(election = self.lock.key, "campaigning again: {error:#}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                elected => elected?,
            };
            let key = leadership.name().clone();
            match while_leading(&leadership, body(leadership.held())).await {
                Ok(ended) => return run_ended(&key, ended, leadership.resign().await),
                Err(reason) => tracing::warn!(election = %key, %reason, "leadership lost, campaigning again"),
            }
        }
    }

    /// The current leader; `None` if there is none, or if another program has taken the key. The result may be outdated
    /// when it arrives.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid name, [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// This method is cancel safe. It changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let client = &self.lock.client;
        let key = Key::new(&self.lock.key)?;
        let seen = client.ask(Some(&key), client.backend.inspect(&key)).await?;
        Ok(seen.as_ref().and_then(Leader::from_holding))
    }

    /// Watches who leads, without being a candidate.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid name.
    pub fn observe(&self) -> Result<Observer, Error> {
        self.lock.client.check_process()?;
        Ok(Observer::new(Arc::clone(&self.lock.client), Key::new(&self.lock.key)?))
    }
}

/// Rejects a value that observers would read differently.
fn check_value(value: Option<&str>) -> Result<(), Invalid> {
    let Some(value) = value else { return Ok(()) };
    if value.is_empty() {
        return Err(Invalid::new("the value of a candidate is empty; leave it out to publish none"));
    }
    if value.len() > Owner::LABEL_MAX_BYTES {
        let (most, bytes) = (Owner::LABEL_MAX_BYTES, value.len());
        return Err(Invalid::new(format!("the value of a candidate has at most {most} bytes; this one has {bytes}")));
    }
    let breaks_line = |c| matches!(c, '\u{2028}' | '\u{2029}');
    if value.chars().any(breaks_line) || Owner::from_text(value).as_str() != value {
        return Err(Invalid::new(format!(
            "the value of a candidate must not contain control characters, line breaks or marks that change the \
             direction of writing: {value:?}"
        )));
    }
    Ok(())
}

/// Watches the leader of an election; see [`Election::observe`](Election::observe).
///
/// It inspects the key when an event says that the leader may have changed, and once a second, or as rarely as its backend
/// wants to be polled. If leaders change faster, some may be skipped. The latest one is always observed.
#[must_use = "an observer sends requests only while `next` is awaited"]
#[derive(Debug)]
pub struct Observer {
    client: Arc<ClientInner>,
    key: Key,
    history: LeaderHistory,
    hints: Arc<Hints>,
    /// The number of hints when the backend last began to send them.
    watched: Option<u64>,
    inspected: Instant,
    /// When to inspect the key again.
    due: Instant,
}

/// The minimum interval between inspections, however many hints arrive.
const SPACING: Duration = Duration::from_millis(10);
/// The maximum time until an observer notices that its client was closed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Observer {
    fn new(client: Arc<ClientInner>, key: Key) -> Self {
        let hints = Arc::new(Hints { key: key.clone(), count: AtomicU64::new(0), notify: Notify::new() });
        client.backend.listen(Arc::clone(&hints) as Arc<dyn Listener>);
        let now = Instant::now();
        let history = LeaderHistory::new(client.config.capabilities.polls);
        Self { client, key, history, hints, watched: None, inspected: now, due: now }
    }

    /// The name of the election.
    pub const fn name(&self) -> &Key {
        &self.key
    }

    /// Waits for the next change; the first call returns the current state. Terms never decrease.
    ///
    /// [`Observation::Unreachable`] is returned once; the next observation is the state after the backend answers again.
    /// Returns `None` after the client was closed.
    ///
    /// # Cancel safety
    /// This method is cancel safe. No observation is lost.
    pub async fn next(&mut self) -> Option<Observation> {
        loop {
            self.wait_until_due().await?;
            let answer = self.inspect().await;
            let observed = self.history.on_answer(answer.as_ref().map(Option::as_ref).map_err(Clone::clone));
            self.inspected = Instant::now();
            self.due = self.inspected + jittered(self.history.pause(), self.client.rng.next());
            if observed.is_some() {
                return observed;
            }
        }
    }

    async fn wait_until_due(&mut self) -> Option<()> {
        loop {
            if self.client.closing.has_begun() {
                return None;
            }
            let now = Instant::now();
            if now >= self.due {
                return Some(());
            }
            tokio::select! {
                biased;
                () = sleep_until(self.due.min(now + LONGEST_SLEEP)) => {}
                () = self.hints.notify.notified() => self.due = self.due.min(self.inspected + SPACING),
            }
        }
    }

    async fn inspect(&mut self) -> Result<Option<Holding>, Unknown> {
        let (backend, hints) = (&self.client.backend, self.hints.count.load(Ordering::SeqCst));
        let seen = backend.inspect(&self.key).await?;
        if seen.is_none() || self.watched == Some(hints) || backend.watch(&self.key).await.is_err() {
            // Without hints, the key is polled.
            return Ok(seen);
        }
        self.watched = Some(hints);
        // The key may have changed before the backend began to send hints.
        backend.inspect(&self.key).await
    }
}

/// Spreads the requests of many observers.
fn jittered(pause: Duration, random: u64) -> Duration {
    pause / 1024 * (1024 - u32::try_from(random % 256).unwrap_or_default())
}

/// Counts the events of the backend that concern the key.
#[derive(Debug)]
struct Hints {
    key: Key,
    /// The number of events. The backend sends one for each [`watch`](fencelock_core::Backend::watch).
    count: AtomicU64,
    notify: Notify,
}

impl Listener for Hints {
    fn event(&self, event: &Event) {
        let concerns = match event {
            Event::Changed { key } | Event::Handed { key, .. } => *key == self.key,
            Event::Queued { .. } => false,
            _ => true,
        };
        if concerns {
            self.count.fetch_add(1, Ordering::SeqCst);
            self.notify.notify_one();
        }
    }
}

/// The term of an elected leader: the [`Guard`] of the lock of its election, renewed until it is dropped.
///
/// [`Leadership::resign`] waits for the confirmation of the backend. Dropping the leadership resigns in the background.
pub type Leadership = Guard<Term>;

/// The term of a leader, which its guard has: [`Leadership::term`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term(());

impl Leadership {
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
    /// A term that was already over is an error, and the current leader is not affected.
    ///
    /// # Errors
    /// See [`Guard::release`].
    ///
    /// # Cancel safety
    /// The release continues in the background.
    pub async fn resign(self) -> Result<(), Error> {
        self.release().await
    }
}

/// Polls `body` until it completes, but never after the end of the term: after a pause of the thread, the loss is
/// checked first.
async fn while_leading<B: Future>(leadership: &Leadership, body: B) -> Result<B::Output, LossReason> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_refused_if_observers_could_not_read_it_as_it_is() {
        for good in ["a", "10.0.0.7:8080", "[::1]:80", "two words ", " a", "锁", &"x".repeat(128)] {
            assert!(check_value(Some(good)).is_ok(), "{good:?}");
        }
        for bad in ["", "a\nb", "a\r", "\u{1b}[2J", "a\u{2028}b", "\u{202e}a", "a\tb", &"x".repeat(129)] {
            let error = check_value(Some(bad)).unwrap_err().to_string();
            assert!(error.starts_with("the value of a candidate "), "{error}");
        }
        assert!(check_value(None).is_ok());
    }
}
