use super::rules::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// A server that takes longer does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a request after a delay, if the server is reachable.
pub(super) async fn send(request: Vec<u8>, after: Duration, shared: Arc<Shared>) {
    sleep(after).await;
    let Ok(mut server) = TcpStream::connect(shared.server()).await else { return };
    if server.write_all(&request).await.is_err() {
        return;
    }
    // The connection stays open until the reply starts, because the server might otherwise discard the request.
    if let Ok(Ok(1..)) = timeout(TIMEOUT, server.read(&mut [0; 1024])).await {
        shared.count_repeat();
    }
}
