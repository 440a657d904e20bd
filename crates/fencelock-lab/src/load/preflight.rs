//! Acquires one lock before the measurement.

use crate::load::command_counter::SERVER_TIMEOUT;
use crate::load::plan::Plan;
use crate::load::protocol::LoadMode;
use crate::load::workspace::LAST_COMMANDS;
use fencelock::backends::{Server, servers};
use fencelock::{Error, Key};
use std::time::Duration;

/// The timeout of this lock.
const WAIT: Duration = Duration::from_secs(10);
/// The time limit for pending work when the client closes.
const CLOSING: Duration = Duration::from_secs(2);

/// Connects to the backend of a plan, acquires and releases one lock if it has servers, and removes its keys. Returns
/// the name of the backend, without secrets.
///
/// # Errors
/// The error of the client, for example an unreachable or quarantined server.
pub async fn preflight(plan: &Plan) -> Result<String, Error> {
    let servers = servers(&plan.url)?;
    let client = plan.sharing.client().connect(&plan.url).await?;
    let name = client.name();
    if servers.is_empty() {
        return Ok(name);
    }
    let key = Key::new(format!("{}:trial-{}", plan.key, std::process::id()))?;
    // In the mode of the load, so that a backend refuses it before the measurement.
    let lock = client.lock(key.as_str()).wait(WAIT);
    let taken = match plan.mode {
        LoadMode::Exclusive => lock.await,
        LoadMode::Shared { .. } => lock.shared().await,
        LoadMode::Permits { limit, weight } => client.semaphore(key.as_str(), limit).wait(WAIT).acquire(weight).await,
    };
    let released = match taken {
        Ok(guard) => guard.release().await.map(drop),
        Err(error) => Err(error),
    };
    let _ = client.close(CLOSING).await;
    remove(&servers, &key).await;
    // The nodes of a quorum that were not needed for the majority may execute the last requests late.
    tokio::time::sleep(LAST_COMMANDS).await;
    remove(&servers, &key).await;
    released.map(|()| name)
}

async fn remove(servers: &[Server], key: &Key) {
    for server in servers {
        let removed = async {
            let mut connection = server.client().get_multiplexed_async_connection().await?;
            redis::cmd("DEL").arg(server.names(key)).exec_async(&mut connection).await
        };
        // Nodes of a quorum may be unreachable; the locks there expire.
        let _ = tokio::time::timeout(SERVER_TIMEOUT, removed).await;
    }
}
