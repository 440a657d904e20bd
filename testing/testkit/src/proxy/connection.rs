use super::intercept::Requests;
use super::rules::{Mode, OPENING, Shared, Then};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// Larger than a request or reply of a lock, so that each arrives in one piece.
const PIECE: usize = 64 * 1024;

/// Forwards one connection in both directions until either side closes it.
pub(super) async fn carry(mut client: TcpStream, shared: Arc<Shared>) {
    let connection = Connection::new(shared);
    if connection.shared.mode() == Mode::BlackHole {
        connection.lost_bytes.store(true, Ordering::SeqCst);
        let mut sink = tokio::io::sink();
        tokio::select! {
            _ = tokio::io::copy(&mut client, &mut sink) => {}
            () = connection.healed() => {}
        }
        return;
    }
    let Ok(mut server) = TcpStream::connect(connection.shared.server()).await else { return };
    // Both fail only on a closed socket, and then the next read also fails.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        () = connection.pump(Way::Up, from_client, to_server) => {}
        () = connection.pump(Way::Down, from_server, to_client) => {}
        () = connection.healed() => {}
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// Bytes, and when to send them.
type Piece = (Instant, Vec<u8>);

struct Connection {
    shared: Arc<Shared>,
    number: u64,
    /// The first data of the client.
    opening: Mutex<Vec<u8>>,
    /// Set by the request whose reply is dropped.
    drop_replies: OnceLock<Then>,
    /// One of them has arrived.
    has_dropped: AtomicBool,
    /// A black hole has taken bytes of this connection, so it cannot continue.
    lost_bytes: AtomicBool,
}

impl Connection {
    fn new(shared: Arc<Shared>) -> Self {
        let number = shared.next_number();
        let (opening, drop_replies) = (Mutex::default(), OnceLock::new());
        let (has_dropped, lost_bytes) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { shared, number, opening, drop_replies, has_dropped, lost_bytes }
    }

    /// Waits until the black hole that took bytes of this connection is over.
    async fn healed(&self) {
        let (mut mode, mut lost) = (self.shared.mode.subscribe(), self.shared.lost.subscribe());
        loop {
            mode.mark_unchanged();
            lost.mark_unchanged();
            if !self.is_black_hole() && self.lost_bytes.load(Ordering::SeqCst) {
                return;
            }
            let changed = tokio::select! {
                changed = mode.changed() => changed,
                changed = lost.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Whether an order of the proxy makes it one, now.
    fn is_black_hole(&self) -> bool {
        let is_lost = |opening: &[u8]| self.shared.lost.borrow().as_ref().is_some_and(|lost| lost.is_of(opening));
        self.shared.mode() == Mode::BlackHole || is_lost(&self.opening.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_opening(&self, piece: &[u8]) {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OPENING - opening.len();
        opening.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Reading continues while earlier pieces are delayed, so a delay adds latency and does not limit the rate.
    async fn pump(&self, way: Way, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) {
        let (pieces, due) = unbounded_channel();
        let reading = self.read(way, from, pieces);
        let writing = self.write(to, due);
        tokio::pin!(reading, writing);
        tokio::select! {
            // Data that was read before the end is still written.
            () = &mut reading => writing.await,
            () = &mut writing => {}
        }
    }

    async fn read(&self, way: Way, mut from: impl AsyncRead + Unpin, pieces: UnboundedSender<Piece>) {
        let (mut buffer, mut requests) = (vec![0; PIECE], Requests::default());
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let mut piece = buffer[..length].to_vec();
            let delay = match way {
                Way::Up => {
                    let delay = self.request(&piece);
                    let Some(rewritten) = requests.rewrite(&self.shared.interceptor, &piece) else { return };
                    piece = rewritten;
                    delay
                }
                Way::Down => match self.drop_replies.get() {
                    None => self.shared.down(),
                    Some(then) => {
                        self.has_dropped.store(true, Ordering::SeqCst);
                        self.shared.count_dropped_reply();
                        if *then == Then::Close {
                            return;
                        }
                        continue;
                    }
                },
            };
            if pieces.send((Instant::now() + delay, piece)).is_err() {
                return;
            }
        }
    }

    /// Decides whether the reply of this request is dropped, before the request is sent.
    fn request(&self, piece: &[u8]) -> Duration {
        self.note_opening(piece);
        self.shared.remember(piece);
        if let Some(then) = self.shared.take_match(piece) {
            let _ = self.drop_replies.set(then);
        }
        self.shared.up()
    }

    async fn write(&self, mut to: impl AsyncWrite + Unpin, mut due: UnboundedReceiver<Piece>) {
        let mut mode = self.shared.mode.subscribe();
        while let Some((when, piece)) = due.recv().await {
            sleep_until(when).await;
            if mode.wait_for(|mode| *mode != Mode::Hold).await.is_err() {
                return;
            }
            if self.is_black_hole() || self.shared.is_stranded(self.number) {
                self.lost_bytes.store(true, Ordering::SeqCst);
                continue;
            }
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The client may close the connection before the reply arrives, for example after its timeout.
        if self.drop_replies.get().is_some() && !self.has_dropped.load(Ordering::SeqCst) {
            self.shared.count_dropped_reply();
        }
        self.shared.count_out();
    }
}
