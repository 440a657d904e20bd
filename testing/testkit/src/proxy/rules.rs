use super::intercept::Interceptor;
use super::request;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What happens to a connection after one of its replies was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The connection is closed.
    Close,
    /// The connection stays open: requests arrive, and no reply is sent back.
    StaySilent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Forward,
    Hold,
    BlackHole,
    Cut,
}

/// How much of the first data of a client is known of each connection.
pub(super) const OPENING: usize = 128;

/// The connections whose first data has these bytes at this offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) at: usize,
    pub(super) bytes: Vec<u8>,
}

impl Opening {
    pub(super) fn is_of(&self, first: &[u8]) -> bool {
        first.get(self.at..).is_some_and(|rest| rest.starts_with(&self.bytes))
    }
}

/// The shared state of all connections of a proxy.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mode: watch::Sender<Mode>,
    /// The connections that are black holes in every mode.
    pub(super) lost: watch::Sender<Option<Opening>>,
    pub(super) interceptor: Interceptor,
    rules: Mutex<Rules>,
    dropped_replies: watch::Sender<u64>,
    repeated: AtomicU64,
    open: AtomicUsize,
    /// The number of all connections, and how many of the first ones are black holes.
    opened: AtomicU64,
    stranded: AtomicU64,
}

/// The number of requests that the proxy stores, for all connections.
const MEMORY: usize = 32;

#[derive(Debug)]
struct Rules {
    server: SocketAddr,
    recent: VecDeque<Vec<u8>>,
    up: Duration,
    down: Duration,
    reply_drop: Option<ReplyDrop>,
}

/// Drops the reply of the next request with these words.
#[derive(Debug)]
struct ReplyDrop {
    words: Vec<u8>,
    then: Then,
}

impl Shared {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self {
            mode: watch::Sender::new(Mode::Forward),
            lost: watch::Sender::new(None),
            interceptor: Interceptor::default(),
            rules: Mutex::new(Rules {
                server,
                recent: VecDeque::new(),
                up: Duration::ZERO,
                down: Duration::ZERO,
                reply_drop: None,
            }),
            dropped_replies: watch::Sender::new(0),
            repeated: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            stranded: AtomicU64::new(0),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// The target of new connections.
    pub(super) fn server(&self) -> SocketAddr {
        self.rules().server
    }

    pub(super) fn forward_to(&self, server: SocketAddr) {
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
        self.rules().reply_drop = Some(ReplyDrop { words: words.as_bytes().to_vec(), then });
    }

    /// Whether this request matches. The rule applies only once.
    pub(super) fn take_match(&self, request: &[u8]) -> Option<Then> {
        let mut rules = self.rules();
        let then = rules.reply_drop.as_ref().filter(|reply_drop| contains(request, &reply_drop.words))?.then;
        rules.reply_drop = None;
        Some(then)
    }

    /// Stores a request, so that it can be repeated.
    pub(super) fn remember(&self, piece: &[u8]) {
        let mut rules = self.rules();
        for request in request::whole(piece) {
            if rules.recent.len() == MEMORY {
                rules.recent.pop_front();
            }
            rules.recent.push_back(request.to_vec());
        }
    }

    /// The latest request that contains these words.
    pub(super) fn latest(&self, words: &str) -> Option<Vec<u8>> {
        self.rules().recent.iter().rev().find(|request| contains(request, words.as_bytes())).cloned()
    }

    pub(super) fn count_repeat(&self) {
        self.repeated.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::SeqCst)
    }

    pub(super) fn count_dropped_reply(&self) {
        self.dropped_replies.send_modify(|count| *count += 1);
    }

    pub(super) fn dropped_replies(&self) -> u64 {
        *self.dropped_replies.borrow()
    }

    pub(super) async fn until_dropped(&self, count: u64) {
        // This fails only if the sender was dropped, and `self` owns it.
        let _ = self.dropped_replies.subscribe().wait_for(|dropped_replies| *dropped_replies >= count).await;
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The number of a new connection.
    pub(super) fn next_number(&self) -> u64 {
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
