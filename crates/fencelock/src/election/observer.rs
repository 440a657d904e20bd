use crate::driver::ClientInner;
use crate::identity::random;
use fencelock_core::{Event, Holding, Key, LeaderHistory, Listener, Observation, Unknown};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Watches who leads an election, from [`Election::observe`](super::Election::observe).
///
/// It asks the place when an event says that the leader may have changed, and once a second besides. Leaders that
/// follow each other faster than it asks may be left out. The last one is always seen.
#[must_use = "an observer asks only while `next` is awaited"]
pub struct Observer {
    client: Arc<ClientInner>,
    key: Key,
    history: LeaderHistory,
    hints: Arc<Hints>,
    /// The hints that had come when the place was last asked for one.
    watched: Option<u64>,
    asked: Instant,
    /// When to ask again.
    due: Instant,
}

/// However many hints come, the place is not asked more often.
const SPACING: Duration = Duration::from_millis(10);
/// How long after the end of its client an observer ends.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Observer {
    pub(super) fn new(client: Arc<ClientInner>, key: Key) -> Self {
        let hints = Arc::new(Hints { key: key.clone(), count: AtomicU64::new(0), notify: Notify::new() });
        client.backend.listen(Arc::clone(&hints) as Arc<dyn Listener>);
        let now = Instant::now();
        Self { client, key, history: LeaderHistory::default(), hints, watched: None, asked: now, due: now }
    }

    /// The name of the election.
    pub const fn name(&self) -> &Key {
        &self.key
    }

    /// Waits for the next change; the first call returns what is so now. Terms never decrease.
    ///
    /// If the place does not answer, that is told once as [`Observation::Unreachable`], and what is so when it answers
    /// again comes next. `None` after the client was closed.
    ///
    /// # Cancel safety
    /// No observation is lost.
    pub async fn next(&mut self) -> Option<Observation> {
        loop {
            self.wait_until_due().await?;
            let answer = self.ask().await;
            let told = self.history.on_answer(answer.as_ref().map(Option::as_ref).map_err(Clone::clone));
            self.asked = Instant::now();
            self.due = self.asked + jittered(self.history.pause());
            if told.is_some() {
                return told;
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
                () = sleep_until(self.due.min(now + LONGEST_SLEEP)) => {}
                () = self.hints.notify.notified() => self.due = self.due.min(self.asked + SPACING),
            }
        }
    }

    async fn ask(&mut self) -> Result<Option<Holding>, Unknown> {
        let (backend, hints) = (&self.client.backend, self.hints.count.load(Ordering::SeqCst));
        let seen = backend.inspect(&self.key).await?;
        if seen.is_none() || self.watched == Some(hints) || backend.watch(&self.key).await.is_err() {
            // Without a hint it asks once a second.
            return Ok(seen);
        }
        self.watched = Some(hints);
        // What has changed before the place began to watch.
        backend.inspect(&self.key).await
    }
}

/// Many observers must not ask at the same moment.
fn jittered(pause: Duration) -> Duration {
    pause / 1024 * (1024 - u32::try_from(random() % 256).unwrap_or_default())
}

/// What the place says about the key, unasked.
#[derive(Debug)]
struct Hints {
    key: Key,
    /// How many have come. The place sends one for each request to watch.
    count: AtomicU64,
    notify: Notify,
}

impl Listener for Hints {
    fn event(&self, event: &Event) {
        let concerns = match event {
            Event::Changed { key } | Event::Handed { key, .. } => *key == self.key,
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
