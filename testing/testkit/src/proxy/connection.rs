use super::rules::{Mode, Shared, Then};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// More than a request or a reply of a lock, so that each arrives in one piece.
const PIECE: usize = 64 * 1024;

/// Carries one connection to the server and back until either side closes it.
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
    // Both fail only on a socket that is closed by now; then so will the next read.
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

/// Bytes, and when they are due.
type Piece = (Instant, Vec<u8>);

struct Connection {
    shared: Arc<Shared>,
    number: u64,
    /// Set by the request whose reply is swallowed.
    swallow: OnceLock<Then>,
    /// It cannot go on: a black hole took some of its bytes.
    lost_bytes: AtomicBool,
}

impl Connection {
    fn new(shared: Arc<Shared>) -> Self {
        let number = shared.count_in();
        Self { shared, number, swallow: OnceLock::new(), lost_bytes: AtomicBool::new(false) }
    }

    /// Until the black hole that took bytes of this connection is over.
    async fn healed(&self) {
        let mut mode = self.shared.mode.subscribe();
        loop {
            let healed = *mode.borrow_and_update() != Mode::BlackHole && self.lost_bytes.load(Ordering::SeqCst);
            if healed || mode.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reading goes on while earlier pieces are delayed, so a delay makes the way longer, not narrower.
    async fn pump(&self, way: Way, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) {
        let (pieces, due) = unbounded_channel();
        let reading = self.read(way, from, pieces);
        let writing = self.write(to, due);
        tokio::pin!(reading, writing);
        tokio::select! {
            // What was read before the end is still written.
            () = &mut reading => writing.await,
            () = &mut writing => {}
        }
    }

    async fn read(&self, way: Way, mut from: impl AsyncRead + Unpin, pieces: UnboundedSender<Piece>) {
        let mut buffer = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let piece = &buffer[..length];
            let delay = match way {
                Way::Up => self.request(piece),
                Way::Down => match self.swallow.get() {
                    None => self.shared.down(),
                    Some(then) => {
                        self.shared.swallow();
                        if *then == Then::Close {
                            return;
                        }
                        continue;
                    }
                },
            };
            if pieces.send((Instant::now() + delay, piece.to_vec())).is_err() {
                return;
            }
        }
    }

    /// Notes whether its reply is to be swallowed, before it is sent.
    fn request(&self, piece: &[u8]) -> Duration {
        self.shared.remember(piece);
        if let Some(then) = self.shared.spring(piece) {
            let _ = self.swallow.set(then);
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
            if self.shared.mode() == Mode::BlackHole || self.shared.is_stranded(self.number) {
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
        self.shared.count_out();
    }
}
