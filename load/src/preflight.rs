//! Acquires the lock of one task before the measurement.

use crate::command_counter::SERVER_TIMEOUT;
use crate::plan::Plan;
use crate::workspace::LAST_COMMANDS;
use fencelock::backends::{Server, servers};
use fencelock::{Client, Error, Key};
use std::time::Duration;

/// The timeout of this lock.
const WAIT: Duration = Duration::from_secs(10);
/// The time limit for pending work when the client closes.
const CLOSING: Duration = Duration::from_secs(2);

/// Connects to the backend of a plan, acquires and releases the lock of one task if it has servers, and removes its keys. Returns
/// the name of the backend, without secrets.
///
/// # Errors
/// The error of the client, for example an unreachable or quarantined server.
pub async fn preflight(plan: &Plan) -> Result<String, Error> {
    let servers = servers(&plan.url)?;
    let client = Client::builder().sharing(!plan.unshared).connect(&plan.url).await?;
    let name = client.name();
    if servers.is_empty() {
        return Ok(name);
    }
    let key = Key::new(format!("{}:trial-{:016x}", plan.key, fastrand::u64(..)))?;
    let released = match client.lock(&key).ttl(plan.ttl).wait(WAIT).acquire().await {
        Ok(guard) => guard.release().await,
        Err(error) => Err(error),
    };
    let _ = client.close(CLOSING).await;
    remove(&servers, &key).await;
    // The nodes of a quorum that were not needed for the majority may execute the last requests late.
    tokio::time::sleep(LAST_COMMANDS).await;
    remove(&servers, &key).await;
    released.map(|()| name)
}

async fn remove(servers: &[Server], lock: &Key) {
    for server in servers {
        let removed = async {
            let mut connection = server.client().get_multiplexed_async_connection().await?;
            redis::cmd("DEL").arg(server.names(lock)).exec_async(&mut connection).await
        };
        // Nodes of a quorum may be unreachable; the locks there expire.
        let _ = tokio::time::timeout(SERVER_TIMEOUT, removed).await;
    }
}
