use super::connection;
use super::rules::{Mode, Shared};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The time limit for binding the port again after a cut.
const REBIND: Duration = Duration::from_secs(10);

pub(super) struct Order {
    pub(super) mode: Mode,
    pub(super) done: Sender<()>,
}

/// Accepts connections and executes orders until the proxy is dropped.
pub(super) async fn keep(
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    mut orders: UnboundedReceiver<Order>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(Order { mode, done }) = order else { return };
                shared.mode.send_replace(mode);
                if mode == Mode::Cut {
                    listener = None;
                    connections.shutdown().await;
                } else if listener.is_none() {
                    listener = Some(bind_again(address).await);
                }
                let _ = done.send(());
            }
            Some(_) = connections.join_next() => {}
            client = accept(listener.as_ref()) => {
                connections.spawn(connection::carry(client, Arc::clone(&shared)));
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            // The connection was closed before it was accepted, or no file descriptor is available at the moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn bind_again(address: SocketAddr) -> TcpListener {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => assert!(begun.elapsed() < REBIND, "the proxy cannot bind {address} again: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
