//! A network between client and server that simulates faults.

mod connection;
mod intercept;
mod keeper;
mod repeat;
mod request;
mod rules;

use crate::port::Port;
use keeper::Order;
use rules::{Mode, Opening, Shared};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use intercept::Intercept;
pub use rules::Then;

/// Forwards connections to a local port, and simulates faults on request.
///
/// A fault is effective when the call returns, for open and for new connections. The proxy needs
/// no runtime, and ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    orders: UnboundedSender<Order>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// Opens a new local port that forwards to `server`.
    pub fn to(server: u16) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (port, listener) = {
            let _inside = runtime.enter();
            listen()?
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(local(server)));
        let (orders, incoming) = unbounded_channel();
        runtime.spawn(keeper::keep(listener, address, Arc::clone(&shared), incoming));
        Ok(Self { port, shared, orders, runtime: Some(runtime) })
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.open()
    }
}

/// Modes for all connections. Each call replaces the previous mode.
impl Proxy {
    /// Forwards everything. Held data is sent now; connections that lost bytes in a black hole are closed.
    pub fn forward(&self) {
        self.order(Mode::Forward);
    }

    /// Holds all data without loss until [`Proxy::forward`].
    pub fn hold(&self) {
        self.order(Mode::Hold);
    }

    /// Accepts and reads connections, and drops all data in both directions.
    pub fn black_hole(&self) {
        self.order(Mode::BlackHole);
    }

    /// Drops all data of the open connections, as in a black hole; new connections are not affected. The
    /// next call of [`Proxy::forward`] closes the connections that lost data.
    pub fn black_hole_open(&self) {
        self.shared.strand();
    }

    /// Drops all data of the connections, open and new ones, whose first data from the client has these bytes at this offset, within the
    /// first 128 bytes. The mode of the others stays.
    ///
    /// This ends with [`Proxy::keep_all`].
    pub fn lose_those_with(&self, at: usize, bytes: &[u8]) {
        self.shared.lost.send_replace(Some(Opening { at, bytes: bytes.to_vec() }));
    }

    /// Ends [`Proxy::lose_those_with`], and closes the connections that lost data.
    pub fn keep_all(&self) {
        self.shared.lost.send_replace(None);
    }

    /// Closes all connections, and refuses new ones.
    pub fn cut(&self) {
        self.order(Mode::Cut);
    }

    fn order(&self, mode: Mode) {
        let (done, is_done) = channel();
        // Both fail only if the keeper has panicked, and then the test should panic too.
        self.orders.send(Order { mode, done }).expect("a running proxy");
        is_done.recv().expect("a running proxy");
    }
}

/// Other faults.
impl Proxy {
    /// Forwards new connections to another local port. Open connections are not affected.
    pub fn forward_to(&self, server: u16) {
        self.shared.forward_to(local(server));
    }

    /// Sends the latest request that contains `words` again after `after`, on a new connection directly to the server, and
    /// drops the reply. Returns whether the recent requests contain such a request.
    ///
    /// The proxy knows requests that arrived in one piece.
    pub fn repeat_last(&self, words: &str, after: Duration) -> bool {
        let (Some(request), Some(runtime)) = (self.shared.latest(words), &self.runtime) else { return false };
        runtime.spawn(repeat::send(request, after, Arc::clone(&self.shared)));
        true
    }

    /// Decides from now on what happens to each request, by its words. Requests of all connections are examined.
    pub fn intercept(&self, rule: impl Fn(&[String]) -> Intercept + Send + Sync + 'static) {
        self.shared.interceptor.set(rule);
    }

    /// The number of repeated requests that were answered.
    pub fn repeated(&self) -> u64 {
        self.shared.repeated()
    }

    /// Delays data to the server by `up`, and data from the server by `down`.
    pub fn delay(&self, up: Duration, down: Duration) {
        self.shared.set_delay(up, down);
    }

    /// Forwards the next request, and drops its reply.
    ///
    /// From that request on, nothing is sent back on its connection: replies to earlier requests may also be lost.
    pub fn drop_next_reply(&self, then: Then) {
        self.drop_reply_to("", then);
    }

    /// Drops the reply to the next request that contains `words`, and forwards other requests.
    ///
    /// Examines data that arrives together, which is a whole request unless it is longer than some kilobytes.
    pub fn drop_reply_to(&self, words: &str, then: Then) {
        self.shared.arm(words, then);
    }

    /// The number of dropped replies.
    pub fn dropped_replies(&self) -> u64 {
        self.shared.dropped_replies()
    }

    /// Waits until `count` replies were dropped in total. Cancel safe.
    pub async fn until_dropped(&self, count: u64) {
        self.shared.until_dropped(count).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may drop the proxy inside its own runtime, where blocking is not allowed.
            runtime.shutdown_background();
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn listen() -> io::Result<(Port, TcpListener)> {
    loop {
        let port = Port::free()?;
        match std::net::TcpListener::bind(local(port.number())) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok((port, TcpListener::from_std(listener)?));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}
