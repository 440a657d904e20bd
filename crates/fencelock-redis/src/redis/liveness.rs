//! When a connection is given up: one that swallows requests does not break by itself.
//!
//! Requests are answered in their order, so any answer is a sign of life for all that were sent before it. A request that
//! was waited for in vain, with no answer to any other since it was sent, ends its connection: the next one goes over a new
//! one at once. That costs a hand-shake where a server was only slow, and nothing is lost: who waits for an answer on the
//! old connection still gets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Whoever waited less than this and went away says nothing about the connection: a pause of a scheduler is as long.
const SHORTEST: Duration = Duration::from_millis(100);
/// An answer that takes the usual time so many times over is not on its way any more.
const PATIENCE: u32 = 4;

/// What the answers that came, and those that did not, say of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    begun: Instant,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    dead: AtomicBool,
    /// When the last answer came, in microseconds since `begun`.
    heard: AtomicU64,
    /// How long an answer takes, in microseconds, the latest ones counting most; 0 before the first.
    usual: AtomicU64,
}

/// A request that is under way.
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

    /// Whether the connection is given up.
    pub(crate) fn is_dead(&self) -> bool {
        self.inner.dead.load(Ordering::Relaxed)
    }

    /// Gives it up.
    pub(crate) fn end(&self) {
        self.inner.dead.store(true, Ordering::Relaxed);
    }

    /// Gives it up if there was no answer at all since `asked`. Says whether it is given up.
    pub(crate) fn end_if_silent_since(&self, asked: Instant) -> bool {
        if micros(asked - self.begun) >= self.inner.heard.load(Ordering::Relaxed) {
            self.end();
        }
        self.is_dead()
    }

    /// Longer than answers usually take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_micros(self.inner.usual.load(Ordering::Relaxed)) * PATIENCE
    }

    /// A request goes out. If it is dropped without an answer after a good while, nobody will hear of that otherwise.
    pub(crate) fn ask(&self) -> PendingRequest<'_> {
        PendingRequest { liveness: self, at: Instant::now(), answered: false }
    }
}

impl PendingRequest<'_> {
    /// Its answer came, whatever it says.
    pub(crate) fn answered(mut self) {
        self.answered = true;
        let Inner { heard, usual, .. } = &*self.liveness.inner;
        heard.fetch_max(micros(self.liveness.begun.elapsed()), Ordering::Relaxed);
        let took = micros(self.at.elapsed()).max(1);
        let before = usual.load(Ordering::Relaxed);
        // Two that come at once may lose one of them, which is as good.
        usual.store(
            if before == 0 { took } else { before.saturating_mul(7).saturating_add(took) / 8 },
            Ordering::Relaxed,
        );
    }

    /// Its time limit is over.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_limit_ends_a_silent_connection_and_no_other() {
        let liveness = Liveness::new();
        let (slow, quick) = (liveness.ask(), liveness.ask());
        advance(ms(900)).await;
        quick.answered();
        advance(ms(100)).await;
        slow.timed_out();
        assert!(!liveness.is_dead(), "another request was answered meanwhile");
        let lost = liveness.ask();
        advance(ms(1000)).await;
        lost.timed_out();
        assert!(liveness.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_soon_says_nothing_and_who_waited_in_vain_ends_it() {
        let liveness = Liveness::new();
        let impatient = liveness.ask();
        advance(ms(99)).await;
        drop(impatient);
        assert!(!liveness.is_dead());
        let patient = liveness.ask();
        advance(ms(100)).await;
        drop(patient);
        assert!(liveness.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_far_away_has_its_time() {
        let liveness = Liveness::new();
        for _ in 0..3 {
            let asked = liveness.ask();
            advance(ms(200)).await;
            asked.answered();
        }
        assert_eq!(liveness.patience(), ms(800));
        let asked = liveness.ask();
        advance(ms(700)).await;
        drop(asked);
        assert!(!liveness.is_dead());
    }
}
