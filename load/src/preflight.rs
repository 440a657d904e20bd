//! Acquires the locks of one task before the measurement.

use crate::command_counter::SERVER_TIMEOUT;
use crate::holds::Hold;
use crate::locks::{Requests, fixed, names};
use crate::plan::Plan;
use crate::protocol::LoadMode;
use crate::workspace::LAST_COMMANDS;
use fencelock::backends::{Server, servers};
use fencelock::{Error, Key};
use std::time::Duration;

/// The timeout of this lock.
const WAIT: Duration = Duration::from_secs(10);
/// The time limit for pending work when the client closes.
const CLOSING: Duration = Duration::from_secs(2);

/// Connects to the backend of a plan, acquires and releases the locks of one task if it has servers, and removes its keys. Returns
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
    let key = Key::new(format!("{}:trial-{:016x}", plan.key, fastrand::u64(..)))?;
    // In the mode of the load, so that a backend refuses it before the measurement.
    let requests = Requests { mode: plan.mode, ttl: plan.ttl, wait: Some(WAIT) };
    let wanted = if matches!(plan.mode, LoadMode::Shared { .. }) { Hold::Shared } else { Hold::Exclusive };
    let keys = fixed(key.as_str(), plan.mode);
    let released = match requests.acquire(&client, &keys, wanted).await {
        Ok(acquired) => acquired.release().await.map(drop),
        Err(error) => Err(error),
    };
    let _ = client.close(CLOSING).await;
    let locks = keys.into_iter().flat_map(|key| names(key, plan.mode)).map(Key::new).collect::<Result<Vec<_>, _>>()?;
    remove(&servers, &locks).await;
    // The nodes of a quorum that were not needed for the majority may execute the last requests late.
    tokio::time::sleep(LAST_COMMANDS).await;
    remove(&servers, &locks).await;
    released.map(|()| name)
}

async fn remove(servers: &[Server], locks: &[Key]) {
    for server in servers {
        let removed = async {
            let mut connection = server.client().get_multiplexed_async_connection().await?;
            for lock in locks {
                redis::cmd("DEL").arg(server.names(lock)).exec_async(&mut connection).await?;
            }
            Ok::<_, redis::RedisError>(())
        };
        // Nodes of a quorum may be unreachable; the locks there expire.
        let _ = tokio::time::timeout(SERVER_TIMEOUT, removed).await;
    }
}
