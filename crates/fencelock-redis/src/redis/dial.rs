//! Opens connections to the server, and detects dead ones.

use super::push_handler::PushHandler;
use super::quarantine::UNKNOWN_RUN_ID;
use super::sentinel::Mastership;
use super::subscribed::Subscribed;
use super::target::Target;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisResult};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The server of a connection, as far as its messages are concerned.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// Its run id, once it is known.
    pub(crate) run_id: OnceLock<String>,
    /// With sentinels: whether they still name it as the master.
    pub(crate) mastership: Option<Arc<Mastership>>,
    /// Of a connection with sharded channels: its subscriptions.
    pub(crate) shards: Option<Arc<Subscribed>>,
}

impl Origin {
    /// The run id follows.
    pub(crate) fn of(mastership: Option<&Arc<Mastership>>) -> Self {
        Self { mastership: mastership.cloned(), ..Self::default() }
    }

    pub(crate) fn run_id(&self) -> &str {
        self.run_id.get().map_or(UNKNOWN_RUN_ID, String::as_str)
    }

    /// Whether a message that arrives now counts.
    pub(crate) fn counts(&self) -> bool {
        self.mastership.as_ref().is_none_or(|mastership| mastership.counts())
    }
}

/// The length of the request queue of one connection, beyond which senders wait.
pub(super) const ROOM: usize = 4096;

/// `patience` is the timeout of a reply.
pub(crate) async fn dial(
    target: &Target,
    resp3: bool,
    patience: Duration,
    push_handler: &Arc<PushHandler>,
    server: &Arc<Origin>,
) -> RedisResult<MultiplexedConnection> {
    let mut connection = dial_untimed(target, resp3, push_handler, server).await?;
    connection.set_response_timeout(patience);
    Ok(connection)
}

/// A connection that waits for replies without a limit.
pub(crate) async fn dial_untimed(
    target: &Target,
    resp3: bool,
    push_handler: &Arc<PushHandler>,
    server: &Arc<Origin>,
) -> RedisResult<MultiplexedConnection> {
    let info = target.client.get_connection_info().clone();
    let protocol = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    let settings = info.redis_settings().clone().set_protocol(protocol);
    let client = target.client_with(info.set_redis_settings(settings))?;
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(target.limit))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(ROOM);
    if resp3 {
        let (push_handler, server) = (Arc::clone(push_handler), Arc::clone(server));
        config = config.set_push_sender(move |info| {
            push_handler.push(&info, &server);
            Ok::<(), redis::aio::SendError>(())
        });
    }
    client.get_multiplexed_async_connection_with_config(&config).await
}
