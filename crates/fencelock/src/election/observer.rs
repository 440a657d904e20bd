use crate::driver::ClientInner;
use fencelock_core::{Event, Holding, Key, LeaderHistory, Listener, Observation, Unknown};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Watches the leader of an election; see [`Election::observe`](super::Election::observe).
///
/// It inspects the key when an event says that the leader may have changed, and once a second, or as rarely as its backend
/// wants to be polled. If leaders change faster, some may be skipped. The latest one is always observed.
#[must_use = "an observer sends requests only while `next` is awaited"]
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
    pub(super) fn new(client: Arc<ClientInner>, key: Key) -> Self {
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

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("name", &self.key).finish_non_exhaustive()
    }
}
