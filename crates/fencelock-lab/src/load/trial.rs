//! One lock before the load.

use crate::load::census::PATIENCE;
use crate::load::plan::Plan;
use fencelock::backends::servers;
use fencelock::{Client, Error, Key};
use std::time::Duration;

/// A place that gives nothing in this time cannot be measured.
const WAIT: Duration = Duration::from_secs(10);
/// For what is under way when the client ends.
const CLOSING: Duration = Duration::from_secs(2);

/// Connects to the place of a plan, takes one lock there if it is on servers, and leaves nothing. Tells the name of the place,
/// without secrets.
///
/// # Errors
/// Why the place gives no locks, in the words of the client: nobody answers, it is in quarantine, it belongs to others.
pub async fn try_out(plan: &Plan) -> Result<String, Error> {
    let servers = servers(&plan.url)?;
    let client = Client::builder().sharing(false).connect(&plan.url).await?;
    let name = client.name();
    if servers.is_empty() {
        return Ok(name);
    }
    let key = Key::new(format!("{}:trial-{}", plan.key, std::process::id()))?;
    let taken = client.lock(key.as_str()).wait(WAIT).await;
    let released = match taken {
        Ok(guard) => guard.release().await.map(drop),
        Err(error) => Err(error),
    };
    let _ = client.close(CLOSING).await;
    for server in &servers {
        let removed = async {
            let mut connection = server.client().get_multiplexed_async_connection().await?;
            redis::cmd("DEL").arg(server.names(&key)).exec_async(&mut connection).await
        };
        // On a quorum some may be away; what is left there ends by itself.
        let _ = tokio::time::timeout(PATIENCE, removed).await;
    }
    released.map(|()| name)
}
