//! Detects dead connections: a connection that drops requests does not close by itself. Ends the tasks of a session with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A request that was cancelled sooner proves nothing: a pause of a scheduler is as long.
const SHORTEST: Duration = Duration::from_millis(100);
/// A reply that takes this many times the usual time is considered lost.
const PATIENCE: u32 = 4;

/// The state of a connection, as its replies and missing replies show it.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    begun: Instant,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    dead: AtomicBool,
    /// The time of the last reply, in microseconds since `begun`.
    last_reply: AtomicU64,
    /// The usual time of a reply, in microseconds, weighted toward recent ones; 0 before the first.
    usual: AtomicU64,
}

/// A pending request.
#[derive(Debug)]
pub(crate) struct PendingRequest<'a> {
    liveness: &'a Liveness,
    at: Instant,
    answered: bool,
}

impl Liveness {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), inner: Arc::default() }
    }

    /// Whether the connection is considered dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.inner.dead.load(Ordering::Relaxed)
    }

    /// Marks the connection as dead.
    pub(crate) fn end(&self) {
        self.inner.dead.store(true, Ordering::Relaxed);
    }

    /// Marks the connection as dead if no reply has arrived since `sent`. Returns whether it is dead.
    pub(crate) fn end_if_silent_since(&self, sent: Instant) -> bool {
        if micros(sent - self.begun) >= self.inner.last_reply.load(Ordering::Relaxed) {
            self.end();
        }
        self.is_dead()
    }

    /// Longer than the usual time of a reply.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_micros(self.inner.usual.load(Ordering::Relaxed)) * PATIENCE
    }

    /// Starts a request. A request that is cancelled after a long wait without a reply counts as unanswered.
    pub(crate) fn begin_request(&self) -> PendingRequest<'_> {
        PendingRequest { liveness: self, at: Instant::now(), answered: false }
    }
}

impl PendingRequest<'_> {
    /// The reply has arrived, whatever its content.
    pub(crate) fn answered(mut self) {
        self.answered = true;
        let (now, Inner { last_reply, usual, .. }) = (Instant::now(), &*self.liveness.inner);
        last_reply.fetch_max(micros(now - self.liveness.begun), Ordering::Relaxed);
        let took = micros(now - self.at).max(1);
        let before = usual.load(Ordering::Relaxed);
        // Concurrent updates may lose one sample, which is harmless.
        usual.store(
            if before == 0 { took } else { before.saturating_mul(7).saturating_add(took) / 8 },
            Ordering::Relaxed,
        );
    }

    /// The request may not have been sent.
    pub(crate) fn proves_nothing(mut self) {
        self.answered = true;
    }

    /// The timeout of the request has expired.
    pub(crate) fn timed_out(mut self) {
        self.answered = true;
        self.liveness.end_if_silent_since(self.at);
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.answered && self.at.elapsed() >= SHORTEST.max(self.liveness.patience()) {
            self.liveness.end_if_silent_since(self.at);
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A task that ends with its session, when this value is dropped; and a session that ends with its task, even if it panics.
#[derive(Debug)]
pub(crate) struct SessionTask(JoinHandle<()>);

/// Ends the session when it is dropped.
struct EndSession(Liveness);

impl Drop for EndSession {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl SessionTask {
    pub(crate) fn spawn(session: &Liveness, task: impl Future<Output = ()> + Send + 'static) -> Self {
        let end = EndSession(session.clone());
        Self(tokio::spawn(async move {
            let _end = end;
            task.await;
        }))
    }
}

impl Drop for SessionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_closes_only_a_silent_connection() {
        let liveness = Liveness::new();
        let (slow, quick) = (liveness.begin_request(), liveness.begin_request());
        advance(ms(900)).await;
        quick.answered();
        advance(ms(100)).await;
        slow.timed_out();
        assert!(!liveness.is_dead(), "another request received a reply");
        let lost = liveness.begin_request();
        advance(ms(1000)).await;
        lost.timed_out();
        assert!(liveness.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_cancellation_proves_nothing_and_a_late_one_closes_the_connection() {
        let liveness = Liveness::new();
        let impatient = liveness.begin_request();
        advance(ms(99)).await;
        drop(impatient);
        assert!(!liveness.is_dead());
        let patient = liveness.begin_request();
        advance(ms(100)).await;
        drop(patient);
        assert!(liveness.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn a_distant_server_has_a_longer_timeout() {
        let liveness = Liveness::new();
        for _ in 0..3 {
            let request = liveness.begin_request();
            advance(ms(200)).await;
            request.answered();
        }
        assert_eq!(liveness.patience(), ms(800));
        let request = liveness.begin_request();
        advance(ms(700)).await;
        drop(request);
        assert!(!liveness.is_dead());
    }
}
