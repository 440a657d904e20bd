//! Leader election: the leader is the holder of a lock, its term is the fencing token.

mod leadership;
mod observer;

pub use leadership::{Leadership, Term};
pub use observer::Observer;

use crate::driver::ClientInner;
use crate::error::Error;
use crate::held::Held;
use crate::lock::{Lock, settle};
use crate::run::RunError;
use crate::settings::{Settings, setters};
use fencelock_core::{Invalid, Key, Leader, Owner};
use leadership::while_leading;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

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
#[derive(Clone)]
pub struct Election {
    /// Its label is the value of the candidate.
    pub(crate) lock: Lock,
}

/// The delay of the next campaign after one whose term too few replicas have confirmed.
const PAUSE: Duration = Duration::from_millis(100);

impl Election {
    pub(crate) fn new(client: &Arc<ClientInner>, name: &str) -> Self {
        Self { lock: Lock::new(client, name, Settings::unshared()) }
    }

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
        Ok(Leadership::of(self.lock.await?))
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
                Ok(ended) => return settle(key, ended, leadership.resign().await),
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
        client.check_process()?;
        let key = Key::new(&self.lock.key)?;
        let seen = client.backend.inspect(&key).await.map_err(|cause| client.failed(Some(&key), cause))?;
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

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lock { key, settings, .. } = &self.lock;
        f.debug_struct("Election").field("name", key).field("value", &settings.label).finish_non_exhaustive()
    }
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
