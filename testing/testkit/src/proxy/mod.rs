//! A network between a client and a server that does what networks do.

mod connection;
mod keeper;
mod repeat;
mod request;
mod rules;

use crate::port;
use keeper::Order;
use rules::{Mode, Shared};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use rules::Then;

/// Forwards connections to a port of this machine, until told otherwise.
///
/// What it is told holds when the call returns, for the connections that are open as well as for new ones. It needs
/// no runtime, and it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    orders: UnboundedSender<Order>,
    runtime: Option<Runtime>,
}

impl Proxy {
    /// A new port of this machine that leads to `server`.
    pub fn to(server: u16) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            listen()?
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(local(server)));
        let (orders, incoming) = unbounded_channel();
        runtime.spawn(keeper::keep(listener, address, Arc::clone(&shared), incoming));
        Ok(Self { port: address.port(), shared, orders, runtime: Some(runtime) })
    }

    /// The port to connect to.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections are open through it.
    pub fn connections(&self) -> usize {
        self.shared.open()
    }
}

/// What it can do to its connections. Each replaces the one before.
impl Proxy {
    /// Everything passes. What was held passes now; connections that lost bytes in a black hole are closed.
    pub fn forward(&self) {
        self.order(Mode::Forward);
    }

    /// Nothing passes and nothing is lost: it arrives after [`Proxy::forward`].
    pub fn hold(&self) {
        self.order(Mode::Hold);
    }

    /// Connections are accepted and read, and nothing of it ever arrives on either side.
    pub fn black_hole(&self) {
        self.order(Mode::BlackHole);
    }

    /// What passes on the connections that are open now is lost, as in a black hole; new connections are as they were. The
    /// next call of [`Proxy::forward`] closes those that lost something.
    pub fn black_hole_open(&self) {
        self.shared.strand();
    }

    /// Every connection is closed, and new ones are refused.
    pub fn cut(&self) {
        self.order(Mode::Cut);
    }

    fn order(&self, mode: Mode) {
        let (done, is_done) = channel();
        // Both fail only if the keeper panicked, and then the test should too.
        self.orders.send(Order { mode, done }).expect("the proxy runs");
        is_done.recv().expect("the proxy runs");
    }
}

/// What it can do beside that.
impl Proxy {
    /// New connections lead to another port of this machine. Those that are open stay where they are.
    pub fn lead_to(&self, server: u16) {
        self.shared.lead_to(local(server));
    }

    /// A request that has passed is sent once more after a while, on a connection of its own, and its reply is dropped: the
    /// latest that contains `words`. It goes straight to the server, whatever the proxy does to others. Says whether there
    /// was such a request among the last few.
    ///
    /// A request is known if it arrived in one piece.
    pub fn repeat_last(&self, words: &str, after: Duration) -> bool {
        let (Some(request), Some(runtime)) = (self.shared.latest(words), &self.runtime) else { return false };
        runtime.spawn(repeat::send(request, after, Arc::clone(&self.shared)));
        true
    }

    /// How many repeated requests were answered.
    pub fn repeated(&self) -> u64 {
        self.shared.repeated()
    }

    /// From now on, what is sent to the server takes `up` longer, and what comes back `down`.
    pub fn delay(&self, up: Duration, down: Duration) {
        self.shared.set_delay(up, down);
    }

    /// The next request arrives, and its reply does not.
    ///
    /// From that request on, nothing comes back on its connection: replies to requests sent just before are lost too.
    pub fn swallow_next_reply(&self, then: Then) {
        self.swallow_reply_to("", then);
    }

    /// The same for the next request that contains `words`, so that other traffic passes.
    ///
    /// It looks at what arrives at once, which is a whole request unless that is longer than some kilobytes.
    pub fn swallow_reply_to(&self, words: &str, then: Then) {
        self.shared.arm(words, then);
    }

    /// How many replies were swallowed.
    pub fn swallowed(&self) -> u64 {
        self.shared.swallowed()
    }

    /// Until `count` replies were swallowed in all. Cancel safe.
    pub async fn until_swallowed(&self, count: u64) {
        self.shared.until_swallowed(count).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may drop it inside a runtime of its own, where waiting for the end is not allowed.
            runtime.shutdown_background();
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn listen() -> io::Result<TcpListener> {
    loop {
        let address = local(port::free()?);
        match std::net::TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return TcpListener::from_std(listener);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}
