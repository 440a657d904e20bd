use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What happens to a connection after one of its replies was swallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is closed.
    Close,
    /// It stays open: requests arrive, and no reply ever comes back.
    StaySilent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Forward,
    Hold,
    BlackHole,
    Cut,
}

/// What the connections of a proxy have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: SocketAddr,
    pub(super) mode: watch::Sender<Mode>,
    rules: Mutex<Rules>,
    swallowed: watch::Sender<u64>,
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct Rules {
    up: Duration,
    down: Duration,
    trap: Option<Trap>,
}

/// The next request with these words loses its reply.
#[derive(Debug)]
struct Trap {
    words: Vec<u8>,
    then: Then,
}

impl Shared {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            mode: watch::Sender::new(Mode::Forward),
            rules: Mutex::default(),
            swallowed: watch::Sender::new(0),
            open: AtomicUsize::new(0),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    pub(super) fn set_delay(&self, up: Duration, down: Duration) {
        let mut rules = self.rules();
        (rules.up, rules.down) = (up, down);
    }

    pub(super) fn up(&self) -> Duration {
        self.rules().up
    }

    pub(super) fn down(&self) -> Duration {
        self.rules().down
    }

    pub(super) fn arm(&self, words: &str, then: Then) {
        self.rules().trap = Some(Trap { words: words.as_bytes().to_vec(), then });
    }

    /// Whether this request is the one; then no other is.
    pub(super) fn spring(&self, request: &[u8]) -> Option<Then> {
        let mut rules = self.rules();
        let then = rules.trap.as_ref().filter(|trap| contains(request, &trap.words))?.then;
        rules.trap = None;
        Some(then)
    }

    pub(super) fn swallow(&self) {
        self.swallowed.send_modify(|count| *count += 1);
    }

    pub(super) fn swallowed(&self) -> u64 {
        *self.swallowed.borrow()
    }

    pub(super) async fn until_swallowed(&self, count: u64) {
        // It fails only if the sender is gone, which is `self`.
        let _ = self.swallowed.subscribe().wait_for(|swallowed| *swallowed >= count).await;
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(super) fn count_in(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn count_out(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contains(text: &[u8], words: &[u8]) -> bool {
    words.is_empty() || text.windows(words.len()).any(|window| window == words)
}
