use super::request;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    pub(super) mode: watch::Sender<Mode>,
    rules: Mutex<Rules>,
    swallowed: watch::Sender<u64>,
    repeated: AtomicU64,
    open: AtomicUsize,
    /// Connections that were ever opened, and how many of the first of them lead nowhere.
    opened: AtomicU64,
    stranded: AtomicU64,
}

/// How many requests are remembered, of all connections together.
const MEMORY: usize = 32;

#[derive(Debug)]
struct Rules {
    server: SocketAddr,
    recent: VecDeque<Vec<u8>>,
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
            mode: watch::Sender::new(Mode::Forward),
            rules: Mutex::new(Rules {
                server,
                recent: VecDeque::new(),
                up: Duration::ZERO,
                down: Duration::ZERO,
                trap: None,
            }),
            swallowed: watch::Sender::new(0),
            repeated: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            stranded: AtomicU64::new(0),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Where new connections lead.
    pub(super) fn server(&self) -> SocketAddr {
        self.rules().server
    }

    pub(super) fn lead_to(&self, server: SocketAddr) {
        self.rules().server = server;
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

    /// Keeps the last requests, for somebody may want to send one again.
    pub(super) fn remember(&self, piece: &[u8]) {
        let mut rules = self.rules();
        for request in request::whole(piece) {
            if rules.recent.len() == MEMORY {
                rules.recent.pop_front();
            }
            rules.recent.push_back(request.to_vec());
        }
    }

    /// The latest request with these words.
    pub(super) fn latest(&self, words: &str) -> Option<Vec<u8>> {
        self.rules().recent.iter().rev().find(|request| contains(request, words.as_bytes())).cloned()
    }

    pub(super) fn count_repeat(&self) {
        self.repeated.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::SeqCst)
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

    /// The number of a new connection.
    pub(super) fn count_in(&self) -> u64 {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.opened.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn strand(&self) {
        self.stranded.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub(super) fn is_stranded(&self, connection: u64) -> bool {
        connection < self.stranded.load(Ordering::SeqCst)
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
